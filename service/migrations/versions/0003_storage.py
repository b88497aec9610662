"""Pins, counters, turns at chores, and the index by which old jobs are found."""

import sqlalchemy as sa
from alembic import op

revision = "0003_storage"
down_revision = "0002"
branch_labels = None
depends_on = None

seconds = sa.Float(53)
COUNTERS = ("store_bytes", "removed_bytes", "removed_blobs", "expired_jobs")


def upgrade() -> None:
    op.create_table(
        "pins",
        sa.Column("digest", sa.String(80), primary_key=True),
        sa.Column("who", sa.String, nullable=False),
        sa.Column("why", sa.String, nullable=False),
        sa.Column("created_at", seconds, nullable=False),
        sa.Column("expires_at", seconds),
    )
    op.create_table(
        "chores",
        sa.Column("name", sa.String(32), primary_key=True),
        sa.Column("holder", sa.String, nullable=False),
        sa.Column("held_until", seconds, nullable=False),
        sa.Column("ran_at", seconds, nullable=False),
    )
    counters = op.create_table(
        "counters",
        sa.Column("name", sa.String(32), primary_key=True),
        sa.Column("value", sa.BigInteger, nullable=False),
    )
    op.bulk_insert(counters, [{"name": name, "value": 0} for name in COUNTERS])
    chores = sa.table("chores", *(sa.column(c) for c in ("name", "holder", "held_until", "ran_at")))
    op.bulk_insert(chores, [{"name": "gc", "holder": "", "held_until": 0, "ran_at": 0}])
    op.create_index("ix_jobs_finished_at", "jobs", ["finished_at"])


def downgrade() -> None:
    op.drop_index("ix_jobs_finished_at", "jobs")
    for table in ("counters", "chores", "pins"):
        op.drop_table(table)

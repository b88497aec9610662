"""The rows by which collections work: blobs, what refers to them, records, and garbage."""

import sqlalchemy as sa
from alembic import op

revision = "0013_collection"
down_revision = "0012_usage"
branch_labels = None
depends_on = None

digest, seconds = sa.String(80), sa.Float(53)
unread = sa.text("NOT is_read")
CHORES = ("gc-audit", *(f"gc-{number:02x}" for number in range(256)))


def upgrade() -> None:
    op.create_table(
        "blobs",
        sa.Column("digest", digest, primary_key=True),
        sa.Column("size", sa.BigInteger, nullable=False),
        sa.Column("touched_at", seconds, nullable=False),
        sa.Column("is_read", sa.Boolean, nullable=False),
    )
    op.create_index("ix_blobs_touched_at", "blobs", ["touched_at"])
    op.create_index(
        "ix_blobs_unread", "blobs", ["digest"], sqlite_where=unread, postgresql_where=unread
    )
    op.create_table(
        "edges",
        sa.Column("parent", digest, primary_key=True),
        sa.Column("child", digest, primary_key=True),
        sa.Column("is_referrer", sa.Boolean, nullable=False),
    )
    op.create_index("ix_edges_child", "edges", ["child"])
    op.create_table(
        "records",
        sa.Column("kind", sa.String(8), primary_key=True),
        sa.Column("name", sa.String, primary_key=True),
        sa.Column("digest", digest, nullable=False),
        sa.Column("written_at", seconds, nullable=False),
    )
    op.create_index("ix_records_digest", "records", ["digest"])
    op.create_table(
        "garbage",
        sa.Column("digest", digest, primary_key=True),
        sa.Column("size", sa.BigInteger, nullable=False),
        sa.Column("is_removed", sa.Boolean),
    )
    op.create_table(
        "sweeps",
        sa.Column("began_at", seconds, primary_key=True),
        sa.Column("before", seconds, nullable=False),
        sa.Column("records_before", seconds, nullable=False),
        sa.Column("removed_records", sa.BigInteger, nullable=False),
    )
    chores = sa.table("chores", *(sa.column(c) for c in ("name", "holder", "held_until", "ran_at")))
    rows = [{"name": name, "holder": "", "held_until": 0, "ran_at": 0} for name in CHORES]
    op.bulk_insert(chores, rows)


def downgrade() -> None:
    op.execute("DELETE FROM chores WHERE name LIKE 'gc-%'")
    for table in ("sweeps", "garbage", "records", "edges", "blobs"):
        op.drop_table(table)

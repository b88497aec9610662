"""Usage: what builds used of the machines, by day, tenant, project, target and stage."""

import sqlalchemy as sa
from alembic import op

revision = "0012_usage"
down_revision = "0011_pools"
branch_labels = None
depends_on = None

seconds = sa.Float(53)


def upgrade() -> None:
    op.add_column("jobs", sa.Column("project", sa.String(100), nullable=False, server_default=""))
    op.create_table(
        "usage",
        sa.Column("day", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("tenant", sa.String(40), primary_key=True),
        sa.Column("project", sa.String(100), primary_key=True),
        sa.Column("target", sa.String(200), primary_key=True),
        sa.Column("stage", sa.String(16), primary_key=True),
        sa.Column("attempts", sa.BigInteger, nullable=False),
        sa.Column("seconds", seconds, nullable=False),
        sa.Column("cpu_seconds", seconds, nullable=False),
        sa.Column("memory_byte_seconds", seconds, nullable=False),
        sa.Column("stored_bytes", sa.BigInteger, nullable=False),
    )


def downgrade() -> None:
    op.drop_table("usage")
    op.drop_column("jobs", "project")

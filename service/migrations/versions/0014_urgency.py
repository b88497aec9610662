"""Urgency: priorities of jobs, deadlines of builds, and the order in which a tenant's begin."""

import sqlalchemy as sa
from alembic import op

revision = "0014_urgency"
down_revision = "0013_collection"
branch_labels = None
depends_on = None

has_one = sa.text("deadline IS NOT NULL")


def upgrade() -> None:
    op.add_column("jobs", sa.Column("priority", sa.Integer, nullable=False, server_default="0"))
    op.add_column("builds", sa.Column("deadline", sa.Float(53)))
    op.add_column("builds", sa.Column("due_at", sa.Float(53), nullable=False, server_default="0"))
    # What an earlier release submits meanwhile keeps the 0, and so goes first.
    op.execute("UPDATE builds SET due_at = created_at + 3600 WHERE state IN ('queued', 'running')")
    op.create_index("ix_builds_due_at", "builds", ["state", "tenant", "due_at", "capability"])
    op.drop_index("ix_builds_tenant", "builds")
    op.create_index(
        "ix_builds_deadline",
        "builds",
        ["state", "deadline"],
        sqlite_where=has_one,
        postgresql_where=has_one,
    )


def downgrade() -> None:
    op.drop_index("ix_builds_deadline", "builds")
    op.create_index("ix_builds_tenant", "builds", ["state", "tenant", "created_at"])
    op.drop_index("ix_builds_due_at", "builds")
    op.drop_column("builds", "due_at")
    op.drop_column("builds", "deadline")
    op.drop_column("jobs", "priority")

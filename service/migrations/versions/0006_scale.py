"""The index by which jobs of a rare state are listed, and counters of the builds that ended."""

import sqlalchemy as sa
from alembic import op

revision = "0006_scale"
down_revision = "0005_turns"
branch_labels = None
depends_on = None

counters = sa.table("counters", sa.column("name", sa.String), sa.column("value", sa.BigInteger))
builds = sa.table("builds", sa.column("state", sa.String), sa.column("cached", sa.Boolean))
STATES = ("succeeded", "failed", "cancelled", "timed_out")


def upgrade() -> None:
    op.create_index("ix_jobs_listed", "jobs", ["kind", "state", "created_at"])
    counted: dict[str, sa.ColumnElement[bool]] = {"cached": builds.c.cached}
    counted |= {state: (builds.c.state == state) & ~builds.c.cached for state in STATES}
    for ending, condition in counted.items():
        value = sa.select(sa.func.count()).select_from(builds).where(condition).scalar_subquery()
        op.execute(sa.insert(counters).values(name=f"ended_{ending}", value=value))


def downgrade() -> None:
    names = [f"ended_{ending}" for ending in ("cached", *STATES)]
    op.execute(sa.delete(counters).where(counters.c.name.in_(names)))
    op.drop_index("ix_jobs_listed", "jobs")

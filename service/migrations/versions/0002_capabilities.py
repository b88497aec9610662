"""The capability that a worker needs for a build: a target's name, or a described one's kind."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("builds", sa.Column("capability", sa.String, nullable=False, server_default=""))
    op.execute("UPDATE builds SET capability = target")


def downgrade() -> None:
    op.drop_column("builds", "capability")

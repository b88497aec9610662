"""The digest of each job's index, so that a collection need not read the tag of every job."""

import sqlalchemy as sa
from alembic import op

revision = "0007_indexes"
down_revision = "0006_scale"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("jobs", sa.Column("index_digest", sa.String(80)))


def downgrade() -> None:
    op.drop_column("jobs", "index_digest")

"""How much of the workers each tenant has had, by which they take turns."""

import sqlalchemy as sa
from alembic import op

revision = "0005_turns"
down_revision = "0004_tenants"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("tenants", sa.Column("served", sa.Float(53), nullable=False, server_default="0"))


def downgrade() -> None:
    op.drop_column("tenants", "served")

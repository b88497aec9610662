"""Reservations: bytes that count for the quotas of tenants before they are stored."""

import sqlalchemy as sa
from alembic import op

revision = "0008_reservations"
down_revision = "0007_indexes"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "reservations",
        sa.Column("id", sa.String(40), primary_key=True),
        sa.Column("tenant", sa.String(40), nullable=False),
        sa.Column("size", sa.BigInteger, nullable=False),
        sa.Column("is_upload", sa.Boolean, nullable=False),
        sa.Column("held_until", sa.Float(53), nullable=False),
    )
    op.create_index("ix_reservations_tenant", "reservations", ["tenant"])


def downgrade() -> None:
    op.drop_table("reservations")

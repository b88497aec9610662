"""Webhooks: where tenants are told of events, and the deliveries that wait."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "0010_webhooks"
down_revision = "0009_registry"
branch_labels = None
depends_on = None

seconds = sa.Float(53)
document = sa.JSON(none_as_null=True).with_variant(JSONB(none_as_null=True), "postgresql")


def upgrade() -> None:
    op.create_table(
        "webhooks",
        sa.Column("id", sa.String(16), primary_key=True),
        sa.Column("tenant", sa.String(40), nullable=False),
        sa.Column("url", sa.String, nullable=False),
        sa.Column("secret", sa.String(80), nullable=False),
        sa.Column("events", document, nullable=False),
        sa.Column("created_at", seconds, nullable=False),
        sa.Column("created_by", sa.String, nullable=False),
    )
    op.create_index("ix_webhooks_tenant", "webhooks", ["tenant"])
    op.create_table(
        "deliveries",
        sa.Column("id", sa.String(40), primary_key=True),
        sa.Column("webhook_id", sa.String(16), nullable=False),
        sa.Column("tenant", sa.String(40), nullable=False),
        sa.Column("event", sa.String(40), nullable=False),
        sa.Column("data", document, nullable=False),
        sa.Column("created_at", seconds, nullable=False),
        sa.Column("attempts", sa.Integer, nullable=False),
        sa.Column("next_at", seconds),
        sa.Column("delivered_at", seconds),
        sa.Column("error", sa.String),
    )
    op.create_index("ix_deliveries_next_at", "deliveries", ["next_at"])
    op.create_index("ix_deliveries_webhook", "deliveries", ["webhook_id", "created_at"])
    op.create_index("ix_deliveries_created_at", "deliveries", ["created_at"])


def downgrade() -> None:
    for table in ("deliveries", "webhooks"):
        op.drop_table(table)

"""Tenants, tokens, the audit log, and what each tenant holds of the store."""

import time

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "0004_tenants"
down_revision = "0003_storage"
branch_labels = None
depends_on = None

seconds = sa.Float(53)
document = sa.JSON(none_as_null=True).with_variant(JSONB(none_as_null=True), "postgresql")
serial = sa.BigInteger().with_variant(sa.Integer, "sqlite")
DEFAULT = "default"


def upgrade() -> None:
    tenants = op.create_table(
        "tenants",
        sa.Column("name", sa.String(40), primary_key=True),
        sa.Column("created_at", seconds, nullable=False),
        sa.Column("weight", seconds, nullable=False, server_default="1"),
        sa.Column("shares_cache", sa.Boolean, nullable=False, server_default=sa.text("false")),
        sa.Column("stored_limit", sa.BigInteger),
        sa.Column("running_limit", sa.Integer),
        sa.Column("queued_limit", sa.Integer),
        sa.Column("request_limit", seconds),
        sa.Column("stored_bytes", sa.BigInteger, nullable=False, server_default="0"),
    )
    op.bulk_insert(tenants, [{"name": DEFAULT, "created_at": time.time()}])
    op.create_table(
        "tokens",
        sa.Column("id", sa.String(16), primary_key=True),
        sa.Column(
            "tenant",
            sa.String(40),
            sa.ForeignKey("tenants.name", name="fk_tokens_tenant"),
            nullable=False,
        ),
        sa.Column("name", sa.String, nullable=False),
        sa.Column("secret_hash", sa.String(64), nullable=False),
        sa.Column("scopes", document, nullable=False),
        sa.Column("created_at", seconds, nullable=False),
        sa.Column("expires_at", seconds),
        sa.Column("revoked_at", seconds),
        sa.Column("last_used_at", seconds),
    )
    op.create_index("ix_tokens_tenant", "tokens", ["tenant", "created_at"])
    op.create_table(
        "audit",
        sa.Column("id", serial, primary_key=True, autoincrement=True),
        sa.Column("time", seconds, nullable=False),
        sa.Column("tenant", sa.String(40), nullable=False),
        sa.Column("principal", sa.String, nullable=False),
        sa.Column("action", sa.String(40), nullable=False),
        sa.Column("subject", sa.String, nullable=False),
        sa.Column("outcome", sa.String(16), nullable=False),
        sa.Column("request_id", sa.String(64)),
        sa.Column("detail", document, nullable=False),
    )
    op.create_index("ix_audit_time", "audit", ["time"])
    op.create_index("ix_audit_tenant", "audit", ["tenant", "id"])
    op.create_table(
        "holdings",
        sa.Column("tenant", sa.String(40), primary_key=True),
        sa.Column("digest", sa.String(80), primary_key=True),
        sa.Column("size", sa.BigInteger, nullable=False),
        sa.Column("held_at", seconds, nullable=False),
    )
    op.create_index("ix_holdings_digest", "holdings", ["digest"])
    # Processes of the release before write no tenant: what they write is the operator's.
    for table in ("jobs", "builds"):
        column = sa.Column("tenant", sa.String(40), nullable=False, server_default=DEFAULT)
        op.add_column(table, column)
    op.create_index("ix_jobs_tenant", "jobs", ["tenant", "kind", "created_at"])
    op.create_index("ix_builds_tenant", "builds", ["state", "tenant", "created_at"])
    _give_pins_a_tenant()


def _give_pins_a_tenant() -> None:
    """SQLite cannot change a primary key, so the table is made anew."""
    op.create_table(
        "pins_of_tenants",
        sa.Column("tenant", sa.String(40), primary_key=True, server_default=DEFAULT),
        sa.Column("digest", sa.String(80), primary_key=True),
        sa.Column("who", sa.String, nullable=False),
        sa.Column("why", sa.String, nullable=False),
        sa.Column("created_at", seconds, nullable=False),
        sa.Column("expires_at", seconds),
    )
    columns = "digest, who, why, created_at, expires_at"
    op.execute(f"INSERT INTO pins_of_tenants ({columns}) SELECT {columns} FROM pins")
    op.drop_table("pins")
    op.rename_table("pins_of_tenants", "pins")


def downgrade() -> None:
    op.drop_index("ix_builds_tenant", "builds")
    op.drop_index("ix_jobs_tenant", "jobs")
    for table in ("builds", "jobs"):
        op.drop_column(table, "tenant")
    for table in ("holdings", "audit", "tokens", "tenants"):
        op.drop_table(table)

"""The registry: names of models, their versions, and aliases that move between them."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "0009_registry"
down_revision = "0008_reservations"
branch_labels = None
depends_on = None

seconds = sa.Float(53)
document = sa.JSON(none_as_null=True).with_variant(JSONB(none_as_null=True), "postgresql")


def upgrade() -> None:
    op.create_table(
        "registered_models",
        sa.Column("tenant", sa.String(40), primary_key=True),
        sa.Column("name", sa.String(100), primary_key=True),
        sa.Column("project", sa.String(100), nullable=False),
        sa.Column("labels", document, nullable=False),
        sa.Column("notes", sa.String, nullable=False),
        sa.Column("created_at", seconds, nullable=False),
        sa.Column("last_version", sa.Integer, nullable=False),
    )
    op.create_table(
        "model_versions",
        sa.Column("tenant", sa.String(40), primary_key=True),
        sa.Column("name", sa.String(100), primary_key=True),
        sa.Column("version", sa.Integer, primary_key=True),
        sa.Column("digest", sa.String(80), nullable=False),
        sa.Column("job_id", sa.String(32)),
        sa.Column("submitter", sa.String, nullable=False),
        sa.Column("labels", document, nullable=False),
        sa.Column("notes", sa.String, nullable=False),
        sa.Column("created_at", seconds, nullable=False),
    )
    op.create_table(
        "model_aliases",
        sa.Column("tenant", sa.String(40), primary_key=True),
        sa.Column("name", sa.String(100), primary_key=True),
        sa.Column("alias", sa.String(60), primary_key=True),
        sa.Column("version", sa.Integer, nullable=False),
        sa.Column("previous", sa.Integer),
        sa.Column("moved_at", seconds, nullable=False),
        sa.Column("moved_by", sa.String, nullable=False),
    )


def downgrade() -> None:
    for table in ("model_aliases", "model_versions", "registered_models"):
        op.drop_table(table)

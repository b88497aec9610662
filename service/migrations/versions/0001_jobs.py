"""Jobs, builds, events and workers."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

document = sa.JSON(none_as_null=True).with_variant(JSONB(none_as_null=True), "postgresql")
seconds = sa.Float(53)
RUNNING = sa.text("state = 'running'")


def upgrade() -> None:
    op.create_table(
        "jobs",
        sa.Column("id", sa.String(32), primary_key=True),
        sa.Column("kind", sa.String(16), nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("model", sa.String(80), nullable=False),
        sa.Column("model_name", sa.String),
        sa.Column("request", document, nullable=False),
        sa.Column("idempotency_key", sa.String),
        sa.Column("fingerprint", sa.String(80), nullable=False),
        sa.Column("created_at", seconds, nullable=False),
        sa.Column("finished_at", seconds),
        sa.Column("last_seq", sa.Integer, nullable=False, server_default="0"),
        sa.UniqueConstraint("idempotency_key", name="uq_jobs_idempotency_key"),
    )
    op.create_index("ix_jobs_newest", "jobs", ["kind", "created_at"])
    op.create_table(
        "builds",
        sa.Column("id", sa.String(40), primary_key=True),
        sa.Column(
            "job_id",
            sa.String(32),
            sa.ForeignKey("jobs.id", name="fk_builds_job_id"),
            nullable=False,
        ),
        sa.Column("position", sa.Integer, nullable=False),
        sa.Column("target", sa.String, nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("stage", sa.String(16)),
        sa.Column("action_key", sa.String(80)),
        sa.Column("cached", sa.Boolean, nullable=False, server_default=sa.text("false")),
        sa.Column("artifact", document),
        sa.Column("report", document),
        sa.Column("profile", document),
        sa.Column("numerics", document),
        sa.Column("error", document),
        sa.Column("created_at", seconds, nullable=False),
        sa.Column("started_at", seconds),
        sa.Column("finished_at", seconds),
        sa.Column("attempts", sa.Integer, nullable=False, server_default="0"),
        sa.Column("fence", sa.Integer, nullable=False, server_default="0"),
        sa.Column("worker", sa.String),
        sa.Column("waiting_on", sa.String(40)),
        sa.Column("cancel_requested", sa.Boolean, nullable=False, server_default=sa.text("false")),
        sa.Column("lease_until", seconds),
        sa.Column("rung_at", seconds, nullable=False),
        sa.Column("log_lines", sa.Integer, nullable=False, server_default="0"),
    )
    op.create_index("ix_builds_job", "builds", ["job_id", "position"], unique=True)
    op.create_index("ix_builds_state", "builds", ["state", "created_at"])
    op.create_index("ix_builds_action_key", "builds", ["action_key"])
    op.create_index(
        "uq_builds_running_key",
        "builds",
        ["action_key"],
        unique=True,
        sqlite_where=RUNNING,
        postgresql_where=RUNNING,
    )
    op.create_table(
        "events",
        sa.Column(
            "job_id",
            sa.String(32),
            sa.ForeignKey("jobs.id", name="fk_events_job_id"),
            primary_key=True,
        ),
        sa.Column("seq", sa.Integer, primary_key=True),
        sa.Column("time", seconds, nullable=False),
        sa.Column("type", sa.String(32), nullable=False),
        sa.Column("target", sa.String),
        sa.Column("data", document, nullable=False),
    )
    op.create_table(
        "workers",
        sa.Column("name", sa.String, primary_key=True),
        sa.Column("hostname", sa.String, nullable=False),
        sa.Column("capabilities", document, nullable=False),
        sa.Column("slots", sa.Integer, nullable=False),
        sa.Column("seen_at", seconds, nullable=False),
    )
    op.create_index("ix_workers_seen_at", "workers", ["seen_at"])


def downgrade() -> None:
    for table in ("workers", "events", "builds", "jobs"):
        op.drop_table(table)

"""Tables of the job database; times are seconds since the epoch, UTC."""

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Float,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    String,
    Table,
    text,
)

from service.db.types import Document, Text
from service.identity import DEFAULT

metadata = MetaData(
    naming_convention={
        "ix": "ix_%(column_0_label)s",
        "uq": "uq_%(table_name)s_%(column_0_name)s",
        "fk": "fk_%(table_name)s_%(column_0_name)s",
    }
)

Seconds = Float(53)

jobs = Table(
    "jobs",
    metadata,
    Column("id", Text(32), primary_key=True),
    Column("kind", String(16), nullable=False),
    Column("state", String(16), nullable=False),
    Column("model", String(80), nullable=False),
    Column("model_name", Text),
    Column("request", Document, nullable=False),
    Column("idempotency_key", Text, unique=True),
    Column("fingerprint", String(80), nullable=False),
    Column("created_at", Seconds, nullable=False),
    Column("finished_at", Seconds),
    Column("last_seq", Integer, nullable=False, server_default="0"),
    Column("tenant", String(40), nullable=False, server_default=DEFAULT),
    Column("index_digest", String(80)),
    Column("project", String(100), nullable=False, server_default=""),
    Column("priority", Integer, nullable=False, server_default="0"),
    Index("ix_jobs_tenant", "tenant", "kind", "created_at"),
    Index("ix_jobs_newest", "kind", "created_at"),
    Index("ix_jobs_listed", "kind", "state", "created_at"),
    Index("ix_jobs_finished_at", "finished_at"),
)

builds = Table(
    "builds",
    metadata,
    Column("id", String(40), primary_key=True),
    Column("job_id", ForeignKey("jobs.id"), nullable=False),
    Column("position", Integer, nullable=False),
    Column("target", Text, nullable=False),
    Column("capability", Text, nullable=False, server_default=""),
    Column("state", String(16), nullable=False),
    Column("stage", String(16)),
    Column("action_key", String(80)),
    Column("cached", Boolean, nullable=False, server_default=text("false")),
    Column("artifact", Document),
    Column("report", Document),
    Column("profile", Document),
    Column("numerics", Document),
    Column("error", Document),
    Column("created_at", Seconds, nullable=False),
    Column("started_at", Seconds),
    Column("finished_at", Seconds),
    Column("attempts", Integer, nullable=False, server_default="0"),
    Column("fence", Integer, nullable=False, server_default="0"),
    Column("worker", Text),
    Column("waiting_on", String(40)),
    Column("cancel_requested", Boolean, nullable=False, server_default=text("false")),
    Column("lease_until", Seconds),
    Column("rung_at", Seconds, nullable=False),
    Column("log_lines", Integer, nullable=False, server_default="0"),
    Column("tenant", String(40), nullable=False, server_default=DEFAULT),
    Column("deadline", Seconds),
    Column("due_at", Seconds, nullable=False, server_default="0"),
    Index("ix_builds_due_at", "state", "tenant", "due_at", "capability"),
    Index("ix_builds_job", "job_id", "position", unique=True),
    Index("ix_builds_state", "state", "created_at"),
    Index("ix_builds_action_key", "action_key"),
    Index(
        "ix_builds_capability",
        "capability",
        "state",
        sqlite_where=text("state IN ('queued', 'running')"),
        postgresql_where=text("state IN ('queued', 'running')"),
    ),
    Index(
        "ix_builds_deadline",
        "state",
        "deadline",
        sqlite_where=text("deadline IS NOT NULL"),
        postgresql_where=text("deadline IS NOT NULL"),
    ),
    # Single flight: at most one build of an action key runs, and its lease is the flight's.
    Index(
        "uq_builds_running_key",
        "action_key",
        unique=True,
        sqlite_where=text("state = 'running'"),
        postgresql_where=text("state = 'running'"),
    ),
)

events = Table(
    "events",
    metadata,
    Column("job_id", ForeignKey("jobs.id"), primary_key=True),
    Column("seq", Integer, primary_key=True),
    Column("time", Seconds, nullable=False),
    Column("type", String(32), nullable=False),
    Column("target", Text),
    Column("data", Document, nullable=False),
)

workers = Table(
    "workers",
    metadata,
    Column("name", Text, primary_key=True),
    Column("hostname", Text, nullable=False),
    Column("capabilities", Document, nullable=False),
    Column("slots", Integer, nullable=False),
    Column("seen_at", Seconds, nullable=False, index=True),
)

# Pools of workers as the operator declares them; the view `scaling` counts the builds of each.
pools = Table(
    "pools",
    metadata,
    Column("pool", String(40), primary_key=True),
    Column("capability", Text, primary_key=True),
    Column("above", Integer, nullable=False),
)

pins = Table(
    "pins",
    metadata,
    Column("tenant", String(40), primary_key=True, server_default=DEFAULT),
    Column("digest", String(80), primary_key=True),
    Column("who", Text, nullable=False),
    Column("why", Text, nullable=False),
    Column("created_at", Seconds, nullable=False),
    Column("expires_at", Seconds),
)

# Work that one process at a time does for all; the migration makes the rows.
chores = Table(
    "chores",
    metadata,
    Column("name", String(32), primary_key=True),
    Column("holder", String, nullable=False),
    Column("held_until", Seconds, nullable=False),
    Column("ran_at", Seconds, nullable=False),
)

STORE_BYTES = "store_bytes"
"""The counter of what the store holds, an estimate: collections count, each new blob adds."""
ENDED = "ended_"
"""Begins the names of the counters of ended builds; the ending follows: `cached`, or the state."""
CACHED = "cached"
TENANTS_DELETED = "tenants_deleted"
"""The counter of tenants that were deleted; the first deletion makes it."""
FLOOR_ROW = "schema_floor"
"""The counter that `service.db.upgrade` keeps: the oldest revision whose release works here."""

counters = Table(
    "counters",
    metadata,
    Column("name", String(32), primary_key=True),
    Column("value", BigInteger, nullable=False),
)

tenants = Table(
    "tenants",
    metadata,
    Column("name", String(40), primary_key=True),
    Column("created_at", Seconds, nullable=False),
    Column("weight", Seconds, nullable=False, server_default="1"),
    Column("shares_cache", Boolean, nullable=False, server_default=text("false")),
    Column("stored_limit", BigInteger),
    Column("running_limit", Integer),
    Column("queued_limit", Integer),
    Column("request_limit", Seconds),
    Column("stored_bytes", BigInteger, nullable=False, server_default="0"),
    Column("served", Seconds, nullable=False, server_default="0"),
)

tokens = Table(
    "tokens",
    metadata,
    Column("id", String(16), primary_key=True),
    Column("tenant", ForeignKey("tenants.name"), nullable=False),
    Column("name", Text, nullable=False),
    Column("secret_hash", String(64), nullable=False),
    Column("scopes", Document, nullable=False),
    Column("created_at", Seconds, nullable=False),
    Column("expires_at", Seconds),
    Column("revoked_at", Seconds),
    Column("last_used_at", Seconds),
    Index("ix_tokens_tenant", "tenant", "created_at"),
)

audit = Table(
    "audit",
    metadata,
    Column("id", BigInteger().with_variant(Integer, "sqlite"), primary_key=True),
    Column("time", Seconds, nullable=False),
    Column("tenant", String(40), nullable=False),
    Column("principal", Text, nullable=False),
    Column("action", String(40), nullable=False),
    Column("subject", Text, nullable=False),
    Column("outcome", String(16), nullable=False),
    Column("request_id", String(64)),
    Column("detail", Document, nullable=False),
    Index("ix_audit_time", "time"),
    Index("ix_audit_tenant", "tenant", "id"),
)

# Which blobs a tenant may read: what it uploaded and what was built for it.
holdings = Table(
    "holdings",
    metadata,
    Column("tenant", String(40), primary_key=True),
    Column("digest", String(80), primary_key=True),
    Column("size", BigInteger, nullable=False),
    Column("held_at", Seconds, nullable=False),
    Index("ix_holdings_digest", "digest"),
)

# What tenants have under way: it counts for their quotas before it is stored. A row whose owner
# died is over at `held_until`.
reservations = Table(
    "reservations",
    metadata,
    Column("id", String(40), primary_key=True),
    Column("tenant", String(40), nullable=False),
    Column("size", BigInteger, nullable=False),
    Column("is_upload", Boolean, nullable=False),
    Column("held_until", Seconds, nullable=False),
    Index("ix_reservations_tenant", "tenant"),
)

# Names that a tenant gave to what was built, and numbered versions of them.
registered_models = Table(
    "registered_models",
    metadata,
    Column("tenant", String(40), primary_key=True),
    Column("name", String(100), primary_key=True),
    Column("project", String(100), nullable=False),
    Column("labels", Document, nullable=False),
    Column("notes", Text, nullable=False),
    Column("created_at", Seconds, nullable=False),
    Column("last_version", Integer, nullable=False),
)

model_versions = Table(
    "model_versions",
    metadata,
    Column("tenant", String(40), primary_key=True),
    Column("name", String(100), primary_key=True),
    Column("version", Integer, primary_key=True),
    Column("digest", String(80), nullable=False),
    Column("job_id", String(32)),
    Column("submitter", Text, nullable=False),
    Column("labels", Document, nullable=False),
    Column("notes", Text, nullable=False),
    Column("created_at", Seconds, nullable=False),
)

model_aliases = Table(
    "model_aliases",
    metadata,
    Column("tenant", String(40), primary_key=True),
    Column("name", String(100), primary_key=True),
    Column("alias", String(60), primary_key=True),
    Column("version", Integer, nullable=False),
    Column("previous", Integer),
    Column("moved_at", Seconds, nullable=False),
    Column("moved_by", Text, nullable=False),
)

# URLs that are told of a tenant's events; a secret signs, so that it cannot be a hash.
webhooks = Table(
    "webhooks",
    metadata,
    Column("id", String(16), primary_key=True),
    Column("tenant", String(40), nullable=False),
    Column("url", Text, nullable=False),
    Column("secret", String(80), nullable=False),
    Column("events", Document, nullable=False),
    Column("created_at", Seconds, nullable=False),
    Column("created_by", Text, nullable=False),
    Index("ix_webhooks_tenant", "tenant"),
)

# What is to be told; `next_at` is None once a delivery has arrived or failed for good.
deliveries = Table(
    "deliveries",
    metadata,
    Column("id", String(40), primary_key=True),
    Column("webhook_id", String(16), nullable=False),
    Column("tenant", String(40), nullable=False),
    Column("event", String(40), nullable=False),
    Column("data", Document, nullable=False),
    Column("created_at", Seconds, nullable=False),
    Column("attempts", Integer, nullable=False),
    Column("next_at", Seconds),
    Column("delivered_at", Seconds),
    Column("error", Text),
    Index("ix_deliveries_next_at", "next_at"),
    Index("ix_deliveries_webhook", "webhook_id", "created_at"),
    Index("ix_deliveries_created_at", "created_at"),
)

# What builds used, by day since the epoch (UTC); rows of a deleted tenant go with it.
usage = Table(
    "usage",
    metadata,
    Column("day", Integer, primary_key=True, autoincrement=False),
    Column("tenant", String(40), primary_key=True),
    Column("project", String(100), primary_key=True),
    Column("target", String(200), primary_key=True),
    Column("stage", String(16), primary_key=True),
    Column("attempts", BigInteger, nullable=False),
    Column("seconds", Seconds, nullable=False),
    Column("cpu_seconds", Seconds, nullable=False),
    Column("memory_byte_seconds", Seconds, nullable=False),
    Column("stored_bytes", BigInteger, nullable=False),
)

# The store's blobs as the last audit saw them, and what was stored since; `touched_at` is no later
# than the last touch. `edges` has what a blob that was read refers to.
blobs = Table(
    "blobs",
    metadata,
    Column("digest", String(80), primary_key=True),
    Column("size", BigInteger, nullable=False),
    Column("touched_at", Seconds, nullable=False),
    Column("is_read", Boolean, nullable=False),
    Index("ix_blobs_touched_at", "touched_at"),
    Index(
        "ix_blobs_unread",
        "digest",
        sqlite_where=text("NOT is_read"),
        postgresql_where=text("NOT is_read"),
    ),
)

# A parent keeps its children: what a manifest names, and as `is_referrer` the manifests that name
# it as their subject.
edges = Table(
    "edges",
    metadata,
    Column("parent", String(80), primary_key=True),
    Column("child", String(80), primary_key=True),
    Column("is_referrer", Boolean, nullable=False),
    Index("ix_edges_child", "child"),
)

# Tags and action records, as the last audit read them in the store.
store_records = Table(
    "records",
    metadata,
    Column("kind", String(8), primary_key=True),
    Column("name", String, primary_key=True),
    Column("digest", String(80), nullable=False),
    Column("written_at", Seconds, nullable=False),
    Index("ix_records_digest", "digest"),
)

# What a collection is about to remove; `is_removed` is None until it was tried. A row in `sweeps`
# says that all of it is marked.
garbage = Table(
    "garbage",
    metadata,
    Column("digest", String(80), primary_key=True),
    Column("size", BigInteger, nullable=False),
    Column("is_removed", Boolean),
)

sweeps = Table(
    "sweeps",
    metadata,
    Column("began_at", Seconds, primary_key=True),
    Column("before", Seconds, nullable=False),
    Column("records_before", Seconds, nullable=False),
    Column("removed_records", BigInteger, nullable=False),
)

"""Pools of workers, and the view that a fleet is scaled by."""

import sqlalchemy as sa
from alembic import op

revision = "0011_pools"
down_revision = "0010_webhooks"
branch_labels = None
depends_on = None

live = sa.text("state IN ('queued', 'running')")

# A pool's builds: those that run, and of each tenant as many queued ones as it may still run.
# Equal builds are one: by the action key, or while a build has none by the request. A build that
# waits for an equal one needs no worker. Each pool has a row, so that one without builds has 0.
SCALING = """
CREATE VIEW scaling AS
WITH live AS (
    SELECT p.pool, b.tenant, b.action_key,
        (SELECT j.fingerprint FROM jobs j WHERE j.id = b.job_id) || b.target AS request,
        CASE WHEN b.state = 'running' THEN 1 ELSE 0 END AS is_running
    FROM builds b CROSS JOIN pools p  -- which keeps SQLite to this order
    WHERE b.capability = p.capability AND b.state IN ('queued', 'running') AND b.waiting_on IS NULL
), keyed AS (
    SELECT pool, tenant, COALESCE(MAX(action_key), request) AS work, MAX(is_running) AS is_running
    FROM live GROUP BY pool, tenant, request
), works AS (
    SELECT pool, tenant, work, MAX(is_running) AS is_running FROM keyed GROUP BY pool, tenant, work
), of_tenant AS (
    SELECT pool, tenant, SUM(is_running) AS running, SUM(1 - is_running) AS queued
    FROM works GROUP BY pool, tenant
), room AS (
    SELECT o.pool, o.running, o.queued, COALESCE(t.running_limit - (
        SELECT COUNT(*) FROM builds b WHERE b.state = 'running' AND b.tenant = o.tenant
    ), o.queued) AS free
    FROM of_tenant o LEFT JOIN tenants t ON t.name = o.tenant
), capped AS (
    SELECT pool, running,
        CASE WHEN free < 0 THEN 0 WHEN free < queued THEN free ELSE queued END AS startable
    FROM room
), total AS (
    SELECT p.pool, p.above, COALESCE(SUM(c.running), 0) AS running,
        COALESCE(SUM(c.startable), 0) AS startable
    FROM (SELECT DISTINCT pool, above FROM pools) p LEFT JOIN capped c ON c.pool = p.pool
    GROUP BY p.pool, p.above
)
SELECT pool, CAST(CASE WHEN running + startable > above THEN running + startable - above ELSE 0 END
        AS BIGINT) AS builds,
    CAST(CASE WHEN running >= above THEN startable
        WHEN running + startable > above THEN running + startable - above ELSE 0 END
        AS BIGINT) AS queued
FROM total
"""


def upgrade() -> None:
    op.create_table(
        "pools",
        sa.Column("pool", sa.String(40), primary_key=True),
        sa.Column("capability", sa.String, primary_key=True),
        sa.Column("above", sa.Integer, nullable=False),
    )
    op.create_index(
        "ix_builds_capability",
        "builds",
        ["capability", "state"],
        sqlite_where=live,
        postgresql_where=live,
    )
    op.execute(SCALING)


def downgrade() -> None:
    op.execute("DROP VIEW scaling")
    op.drop_index("ix_builds_capability", "builds")
    op.drop_table("pools")

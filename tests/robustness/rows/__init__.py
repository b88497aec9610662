"""Every row of the table, area by area."""

from tests.robustness.row import Row
from tests.robustness.rows import (
    access,
    bombs,
    children,
    connections,
    databases,
    disk,
    endpoint,
    failover,
    jobs,
    models,
    neighbours,
    sandbox,
    signing,
    store,
    workers,
)

ROWS: tuple[Row, ...] = (
    *jobs.ROWS,
    *workers.ROWS,
    *databases.ROWS,
    *failover.ROWS,
    *children.ROWS,
    *store.ROWS,
    *disk.ROWS,
    *connections.ROWS,
    *endpoint.ROWS,
    *models.ROWS,
    *bombs.ROWS,
    *sandbox.ROWS,
    *signing.ROWS,
    *access.ROWS,
    *neighbours.ROWS,
)

"""Every row of the table, area by area."""

from tests.robustness.row import Row
from tests.robustness.rows import connections, disk, jobs, signing, store

ROWS: tuple[Row, ...] = (
    *jobs.ROWS,
    *store.ROWS,
    *disk.ROWS,
    *connections.ROWS,
    *signing.ROWS,
)

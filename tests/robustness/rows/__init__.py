"""Every row of the table, area by area."""

from tests.robustness.row import Row
from tests.robustness.rows import jobs, signing, store

ROWS: tuple[Row, ...] = (*jobs.ROWS, *signing.ROWS, *store.ROWS)

"""Every row of the table, area by area."""

from tests.robustness.row import Row
from tests.robustness.rows import jobs

ROWS: tuple[Row, ...] = (*jobs.ROWS,)

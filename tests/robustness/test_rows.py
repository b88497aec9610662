"""A seeded tenth of the rows that take seconds; `make robustness` runs all of them whole."""

import pytest

from tests.robustness.judge import judge
from tests.robustness.rows import ROWS

SCALE, SEED = 0.1, 1611
QUICK = {
    "access",
    "aborted-uploads",
    "api-kills",
    "crash-loop",
    "drain",
    "external-data",
    "flipped-bits",
    "full-disk",
    "signed-mutations",
    "slow-clients",
    "sqlite",
    "store-crashes",
    "submits",
}


@pytest.mark.slow
@pytest.mark.parametrize(
    "row", [row for row in ROWS if row.name in QUICK], ids=lambda row: row.name
)
def test_it_holds(row):
    result = judge(row, SCALE, SEED)
    if result.skipped:
        pytest.skip(result.skipped)
    assert result.held, result.outcome.detail

"""A seeded tenth of rows that take seconds; `make robustness` runs the whole table."""

import pytest

from tests.robustness import misbehaving
from tests.robustness.judge import judge
from tests.robustness.rows import ROWS, children

SCALE, SEED = 0.1, 1611
QUICK = {"access", "drain", "flipped-bits", "full-disk", "store-crashes"}


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize(
    "row", [row for row in ROWS if row.name in QUICK], ids=lambda row: row.name
)
def test_it_holds(row):
    result = judge(row, SCALE, SEED)
    if result.skipped:
        pytest.skip(result.skipped)
    assert result.is_met, result.outcome.detail


def test_each_kind_that_misbehaves_is_known():
    assert set(children.CODES) <= set(misbehaving.KINDS)

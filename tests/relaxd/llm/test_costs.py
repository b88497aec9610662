"""How many draft tokens are profitable."""

import numpy as np
import pytest

from relaxd.llm.costs import Costs, best_count, measure_costs
from relaxd.llm.slots import Logits

ROWS = tuple(1 + 0.15 * row for row in range(8))
DEAR = tuple(1 + 0.9 * row for row in range(8))


@pytest.mark.parametrize(
    ("lengths", "rates", "costs", "count"),
    [
        ([4], [0.9], Costs(ROWS), 4),
        ([4], [0.5], Costs(ROWS), 2),
        ([4], [0.1], Costs(ROWS), 0),
        ([0], [0.9], Costs(ROWS), 0),
        ([4, 4, 4, 4], [0.9] * 4, Costs(ROWS), 4),
        # The rows of the others would be for nothing.
        ([4, 0, 0, 0], [0.9] * 4, Costs(ROWS), 0),
        ([4], [0.9], Costs(ROWS, draft=0.9), 0),
        ([4], [0.8], Costs(DEAR), 0),
        # Three rows take what two take.
        ([4], [0.5], Costs((1.0, 1.4, 1.4, 3.0, 3.0)), 2),
    ],
)
def test_as_many_as_pay(lengths: list[int], rates: list[float], costs: Costs, count: int) -> None:
    assert best_count(lengths, rates, costs) == count


def test_calls_of_more_rows_than_are_known() -> None:
    costs = Costs((1.0, 1.2, 1.4))
    assert [costs.call(rows) for rows in (1, 3)] == [1.0, 1.4]
    assert costs.call(6) == pytest.approx(2.0)
    assert Costs((1.0,)).call(3) == 3.0


def test_what_is_measured_grows_with_the_rows() -> None:
    class Slots:
        stored = 0

        def extend(self, slot: int, tokens: list[int]) -> Logits:
            assert self.stored == 0
            self.stored = len(tokens)
            return np.zeros(1)

        def truncate(self, slot: int, length: int) -> None:
            self.stored = length

    costs = measure_costs(Slots(), 5)
    assert len(costs.rows) == 5
    assert costs.rows[0] == 1.0
    assert sorted(costs.rows) == list(costs.rows)
    assert costs.draft == 0.0

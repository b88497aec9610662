"""The search for layers to keep, by errors that are known beforehand."""

import math
from collections.abc import Mapping, Sequence

import pytest

from compiler.quantize.sensitivity.search import GROUPS, MARGIN, RUNS, Selection, search
from relaxd.contract.narrow import Unit


class Errors:
    """Errors of layers that are independent of each other; counts what is measured."""

    def __init__(self, errors: Mapping[str, float]) -> None:
        self.errors = errors
        self.units: list[Unit] = [(name,) for name in errors]
        self.wholes = self.alones = 0

    def search(self, budget: float) -> Selection:
        def measure(units: Sequence[Unit]) -> float:
            self.wholes += 1
            return self.error(units)

        def alone(units: Sequence[Unit]) -> float:
            self.alones += 1
            return self.error(units)

        return search(self.units, budget, measure, alone)

    def error(self, units: Sequence[Unit]) -> float:
        return math.hypot(*(self.errors[name] for unit in units for name in unit))


def retained_layers(selection: Selection) -> list[str]:
    return [name for group in selection.groups[: selection.retained] for name in group.layers]


def test_nothing_is_kept_within_the_budget() -> None:
    errors = Errors({"a": 0.03, "b": 0.04})
    selection = errors.search(0.05 / MARGIN + 1e-9)
    assert selection == Selection(0.05, left=0.05)
    assert (errors.wholes, errors.alones) == (1, 0)
    # What the reference only just meets, a library may not.
    assert retained_layers(errors.search(0.051)) == ["b"]


@pytest.mark.parametrize("budget", [0.0, 0.01, 0.02, 0.05, 0.1, 0.2])
def test_the_fewest_of_the_worst_are_kept(budget: float) -> None:
    errors = Errors({f"l{i}": 0.001 * (i * 37 % 53 + 1) for i in range(53)})
    selection = errors.search(budget)
    worst = sorted(errors.errors, key=lambda name: -errors.errors[name])
    assert retained_layers(selection) == worst[: selection.retained]
    assert selection.left <= MARGIN * budget
    left = [(name,) for name in worst[selection.retained :]]
    assert selection.left == pytest.approx(errors.error(left))
    assert errors.error([(worst[selection.retained - 1],), *left]) > MARGIN * budget
    assert errors.alones == 53
    assert errors.wholes <= 8


def test_equal_errors_are_taken_in_the_order_of_the_model() -> None:
    errors = Errors({name: 0.1 + 1e-6 * index for index, name in enumerate("abcd")})
    selection = errors.search(0.2)
    assert retained_layers(selection) == ["a"]
    assert {group.error for group in selection.groups} == {0.1}


def test_hundreds_of_layers_take_a_bounded_number_of_runs() -> None:
    names = [f"l{i}" for i in range(1000)]
    errors = Errors(dict.fromkeys(names, 1e-05) | {"l333": 0.2, "l700": 0.1})
    selection = errors.search(0.05)
    assert len(names) > GROUPS
    assert errors.alones <= RUNS
    assert errors.wholes <= 9
    assert retained_layers(selection) == ["l333", "l700"]
    assert sorted(name for group in selection.groups for name in group.layers) == sorted(names)


def test_what_is_not_finite_comes_first() -> None:
    errors = Errors({"a": 0.01, "b": math.inf, "c": 0.02})
    selection = errors.search(0.05)
    assert (retained_layers(selection), selection.error) == (["b"], math.inf)
    assert selection.left == pytest.approx(math.hypot(0.01, 0.02))

"""Conditions that declared ranges decide, and those that they leave to run time."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tvm import tirx

from compiler.ir.shapes import extents as ex
from compiler.ir.shapes.facts import Facts
from relaxd.contract.dims.dims import Dim


def test_a_range_decides_comparisons() -> None:
    facts = Facts()
    n = facts.dim("n", Dim("n", 4, 16))
    assert facts.decide(ex.greater_equal(n, 4)) is True
    assert facts.decide(ex.greater(n, 16)) is False
    assert facts.decide(ex.greater(n, 5)) is None
    assert facts.bounds(n) == (4, 16)
    assert facts.bounds(ex.add(ex.mul(n, 2), 1)) == (9, 33)


def test_a_dim_of_one_value_is_a_number() -> None:
    facts = Facts()
    assert facts.dim("n", Dim("n", 3, 3)) == 3
    assert facts.dim("n") == 3


def test_one_name_is_one_dim() -> None:
    facts = Facts()
    first: Any = facts.dim("n", Dim("n", 1, 8))
    assert first.same_as(facts.dim("n"))
    assert facts.same(ex.mul(first, 2), ex.add(first, first)) is True
    assert facts.same(first, facts.dim("m")) is None
    assert facts.same(first, 9) is False


@given(multiple=st.integers(2, 12), low=st.integers(1, 4), more=st.integers(0, 4))
def test_a_multiple_decides_divisions(multiple: int, low: int, more: int) -> None:
    """Range and multiple together: the least value is the first multiple in the range."""
    facts = Facts()
    dim = Dim("n", low * multiple - 1, (low + more + 1) * multiple, multiple=multiple)
    n = facts.dim("n", dim)
    assert facts.simplify(ex.floormod(n, multiple)) == 0
    assert facts.decide(ex.greater_equal(n, low * multiple)) is True
    assert facts.same(ex.mul(ex.floordiv(n, multiple), multiple), n) is True


def test_what_is_unbounded_has_no_maximum() -> None:
    facts = Facts()
    n = facts.dim("n", Dim("n", 1, None))
    assert facts.bounds(n) == (1, None)
    assert facts.bounds(facts.size("given"))[0] == 0


def test_introduced_dims_get_names_of_their_own() -> None:
    facts = Facts()
    n = facts.dim("n")
    names = [facts.fresh("n").name, facts.fresh("n").name, facts.fresh("m_7").name]
    names.append(facts.fresh("m_7").name)
    assert names == ["n_1", "n_2", "m_7", "m_8"]
    introduced = facts.dim("n_1")
    assert facts.is_introduced(ex.add(introduced, 1))
    assert not facts.is_introduced(ex.add(n, 1))
    assert facts.dims["n_1"].min == 0


@pytest.mark.parametrize("value", [0, 7, True, 2.5])
def test_numbers_stay_as_they_are(value: float) -> None:
    assert Facts().simplify(value) == value
    assert Facts().simplify(tirx.const(value)) == value


def test_a_run_time_integer_has_any_sign() -> None:
    """Made of two variables, since TVM takes each variable of a shape for 0 or more."""
    facts = Facts()
    above, below = facts.integer("k", 9)
    k = above - below
    assert facts.bounds(k) == (-9, 9)
    assert facts.decide(ex.greater_equal(k, 0)) is None
    assert facts.has_integers(ex.add(k, 1))
    assert not facts.has_integers(facts.fresh("n"))
    assert facts.is_introduced(k)
    assert "k" not in facts.dims
    assert [part.name for part in facts.integer("k", 9)] == ["k_1_above", "k_1_below"]
    assert facts.fresh("k").name == "k_2"


def test_signs_of_floats_follow_from_their_parts() -> None:
    facts = Facts()
    n: Any = facts.dim("n", Dim("n", 1, None))
    half = ex.prim(n, "float64") * tirx.const(0.5, "float64")
    assert facts.is_nonnegative(tirx.Cast("int64", tirx.floor(half)))
    assert not facts.is_nonnegative(half - tirx.const(1.0, "float64"))
    assert not facts.is_nonnegative(ex.sub(n, 2))
    assert facts.is_nonnegative(ex.sub(n, 1))
    assert facts.is_nonnegative(ex.maximum(ex.sub(n, 7), 0))
    assert not facts.is_nonnegative(-1)

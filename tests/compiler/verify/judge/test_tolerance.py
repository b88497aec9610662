from typing import Any

import ml_dtypes
import numpy as np
import pytest

from compiler.verify.judge.tolerance import Spread, Tolerance, compare, tolerance_of

TOLERANCE = Tolerance(1e-4, 1e-3)
EXACT = tolerance_of("int64", 1.0, 1.0)


def floats(*values: float) -> np.ndarray[Any, Any]:
    return np.array(values, np.float32)


def test_equal_arrays_do_not_differ() -> None:
    difference = compare(floats(1, 2), floats(1, 2), TOLERANCE)
    assert (difference.max_abs, difference.max_rel, difference.problem) == (0, 0, None)


def test_differences_are_measured() -> None:
    difference = compare(floats(1, 102), floats(1, 100), TOLERANCE)
    assert difference.max_abs == 2
    assert difference.max_rel == pytest.approx(0.02)
    assert difference.range == 100
    assert difference.problem == "1 of 2 elements differ by more than the tolerance"


@pytest.mark.parametrize(
    ("got", "want", "used"),
    [
        # Of the range of 100: 0.01, and a thousandth of the element itself.
        ([1.0055, 100.0], [1.0, 100.0], 0.0055 / 0.011),
        ([1.0, 102.0], [1.0, 100.0], 2 / 0.11),
        ([1.0, 100.0], [1.0, 100.0], 0.0),
        ([np.nan, 1.0], [np.nan, 1.0], 0.0),
        ([np.inf, 1.0], [1.0, 1.0], None),
        ([], [], 0.0),
    ],
)
def test_how_much_of_the_tolerance_is_used(
    got: list[float], want: list[float], used: float | None
) -> None:
    share = compare(floats(*got), floats(*want), TOLERANCE).of_tolerance
    assert share == (used if used is None else pytest.approx(used, rel=1e-4))


def test_integers_use_steps_and_what_must_be_equal_has_no_part() -> None:
    ours, theirs = np.array([3, 7], np.int8), np.array([4, 7], np.int8)
    assert compare(ours, theirs, Tolerance(0.0, 0.0, steps=2)).of_tolerance == 0.5
    assert compare(theirs, theirs, EXACT).of_tolerance == 0.0
    assert compare(ours, theirs, EXACT).of_tolerance is None


def test_the_absolute_tolerance_grows_with_the_range() -> None:
    assert compare(floats(0.05, 1000), floats(0, 1000), TOLERANCE).problem is None
    assert compare(floats(0.05, 1), floats(0, 1), TOLERANCE).problem is not None


def test_small_outputs_are_held_to_their_own_size() -> None:
    assert compare(floats(3e-5, 1e-5), floats(1e-5, 1e-5), TOLERANCE).problem is not None


def test_tiny_outputs_are_held_to_their_own_size() -> None:
    assert compare(floats(4e-10, 1e-11), floats(1e-11, 1e-11), TOLERANCE).problem
    assert compare(floats(1e-11), floats(1.0001e-11), TOLERANCE).problem is None


@pytest.mark.parametrize(
    ("values", "deviation", "constant"),
    [
        ([1, 2, 3, 4], np.std([1, 2, 3, 4]), False),
        ([5, 5, 5], 0.0, True),
        ([5], 0.0, False),
        ([], 0.0, False),
        ([0, 0, 0, 1, 1], np.std([0, 0, 0, 1, 1]), False),
        ([-3e38, -3e38, 1, 2, 3], np.std([1, 2, 3]), False),
        ([np.nan, 1, np.inf, 3], 1.0, False),
    ],
)
def test_the_spread_is_that_of_what_is_neither_saturated_nor_masked(
    values: list[float], deviation: float, constant: bool
) -> None:
    spread = Spread.of(floats(*values))
    assert spread.deviation == pytest.approx(deviation, rel=1e-6)
    assert spread.constant is constant


def test_a_bound_tolerance_lets_no_element_off_by_a_tenth_of_the_spread() -> None:
    want = np.random.default_rng(0).standard_normal(1000).astype("float32") + np.float32(500)
    tolerance = Spread.of(want).limit_to_scale(TOLERANCE)
    assert compare(want + np.float32(0.3), want, TOLERANCE).problem is None
    assert compare(want + np.float32(0.3), want, tolerance).problem
    assert compare(want + np.float32(0.03), want, tolerance).problem is None


def test_steps_that_are_the_whole_range_prove_nothing() -> None:
    """Bytes of 0 and 1 alone: a step is allowed for few of them."""
    one_step = tolerance_of("uint8", None, None, quantized=True)
    want = np.arange(1000, dtype=np.uint8) % 2
    bound = Spread.of(want).limit_to_scale(one_step)
    few = want.copy()
    few[:20] ^= 1
    assert compare(np.zeros_like(want), want, one_step).problem is None
    assert compare(np.zeros_like(want), want, bound).problem
    assert compare(few, want, bound).problem is None


@pytest.mark.parametrize(
    ("got", "want", "fine"),
    [
        (np.nan, np.nan, True),
        (np.inf, np.inf, True),
        (np.inf, -np.inf, False),
        (np.nan, 1.0, False),
        (1.0, np.nan, False),
        (np.inf, 3e38, False),
    ],
)
def test_infinities_and_nan_must_be_where_they_are(got: float, want: float, fine: bool) -> None:
    assert (compare(floats(1, got), floats(1, want), TOLERANCE).problem is None) == fine


def test_dtype_and_shape_must_match() -> None:
    assert "dtype int32" in (
        compare(np.zeros(2, np.int32), np.zeros(2, np.int64), EXACT).problem or ""
    )
    assert "shape [2]" in (compare(floats(0, 0), floats(0), TOLERANCE).problem or "")


def test_integers_are_exact_beyond_what_a_double_holds() -> None:
    large = np.array([2**53 + 1], np.int64)
    assert compare(large, large - 1, EXACT).problem == "1 of 1 elements differ"
    assert (
        compare(np.array([True]), np.array([False]), tolerance_of("bool", None, None)).problem
        is not None
    )


def test_empty_outputs_agree() -> None:
    assert compare(floats(), floats(), TOLERANCE).problem is None


def test_bfloat16_is_compared() -> None:
    one = np.array([1.0, 2.0], ml_dtypes.bfloat16)
    assert compare(one, one, tolerance_of("bfloat16", None, None)).problem is None
    assert compare(one, one * 2, tolerance_of("bfloat16", None, None)).problem is not None


def test_options_replace_a_dtypes_tolerance() -> None:
    assert tolerance_of("float32", 0.5, None) == Tolerance(0.5, 1e-3)
    assert tolerance_of("float32", None, 0.0) == Tolerance(1e-4, 0.0)


def test_roundings_of_quantised_models_may_move_an_integer_by_one_step() -> None:
    one_step = tolerance_of("uint8", None, None, quantized=True)
    got, want = np.array([255, 0], np.uint8), np.array([254, 1], np.uint8)
    assert compare(got, want, one_step).problem is None
    assert compare(got, want - 1, one_step).problem == "1 of 2 elements differ"
    assert tolerance_of("int64", None, None, quantized=True) == EXACT


@pytest.mark.parametrize(
    "dtype", ["float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz"]
)
def test_floats_of_eight_bits_may_be_a_step_off(dtype: str) -> None:
    tolerance = tolerance_of(dtype, None, None, quantized=True)
    normal = np.arange(0x20, 0x78, dtype=np.uint8)
    want, next_, second = ((normal + step).astype(np.uint8).view(dtype) for step in (0, 1, 3))
    assert compare(next_, want, tolerance).problem is None
    assert compare(second, want, tolerance).problem is not None


@pytest.mark.parametrize("dtype", ["int4", "uint4", "int2", "uint2"])
def test_small_integers_are_compared_as_integers(dtype: str) -> None:
    one, two = (np.array([0, value]).astype(dtype) for value in (0, 1))
    assert compare(one, one, tolerance_of(dtype, None, None)).problem is None
    assert compare(one, two, tolerance_of(dtype, None, None)).problem == "1 of 2 elements differ"
    assert compare(one, two, tolerance_of(dtype, None, None, quantized=True)).problem is None

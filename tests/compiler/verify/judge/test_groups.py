"""Columns that are far smaller than the rest of an output, and wrong as a whole."""

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from compiler.verify.judge.evidence import Evidence, judge_beside
from compiler.verify.judge.groups import WRONG, error_share
from compiler.verify.judge.tolerance import Spread, compare, tolerance_of
from relaxd.contract.bundle.numerics import Verdict

Array = np.ndarray[Any, Any]


def faint_column(scale: float, shape: tuple[int, ...] = (32, 40)) -> Array:
    """Values of deviation 1, but for those of the last column."""
    values = np.random.default_rng(1).standard_normal(shape)
    values[..., -1] *= scale
    return values.astype("float32")


def judge(got: Array, want: Array, *perturbed: Array, exact: Array | None = None) -> Verdict:
    spread = Spread.of(want)
    tolerance = spread.limit_to_scale(tolerance_of("float32", None, None))
    evidence = Evidence(() if exact is None else (exact,), perturbed)
    return judge_beside(got, want, evidence, tolerance, spread).verdict


def without_last_column(want: Array) -> Array:
    got = want.copy()
    got[..., -1] = 0
    return got


@pytest.mark.parametrize("scale", [3e-5, 1e-4, 1e-2])
def test_a_faint_column_that_is_never_written_is_wrong(scale: float) -> None:
    want = faint_column(scale)
    got = without_last_column(want)
    perturbed = [want * np.float32(1 + 1e-6), want * np.float32(1 - 1e-6)]
    if scale < 1e-4:
        assert compare(got, want, tolerance_of("float32", None, None)).problem is None
    assert judge(got, want, *perturbed) is Verdict.FAILED
    assert judge(got, want, *perturbed, exact=want.astype("f8")) is Verdict.FAILED


def test_equal_roundings_of_a_faint_column_agree() -> None:
    random = np.random.default_rng(2)
    want = faint_column(3e-5)
    noises = 3e-5 * random.standard_normal((4, *want.shape))
    sides = [want + noise.astype("float32") for noise in noises]
    assert error_share(np.abs(sides[0] - want), want) > WRONG
    assert judge(sides[0], want, *sides[1:]) is Verdict.PASSED


def test_a_library_that_is_nearer_to_float64_than_the_reference_agrees() -> None:
    got = faint_column(3e-5)
    want = without_last_column(got)
    want[..., -1] = -got[..., -1]
    perturbed = [want * np.float32(1 + 1e-6)]
    assert judge(got, want, *perturbed) is Verdict.FAILED
    assert judge(got, want, *perturbed, exact=got.astype("f8")) in (
        Verdict.PASSED,
        Verdict.REFERENCE_INEXACT,
    )


@pytest.mark.parametrize(
    ("scale", "shape"),
    [(1e-7, (32, 40)), (0.0, (32, 40)), (1e-4, (15, 40)), (1e-4, (40,))],
    ids=["rounding", "zero", "few rows", "no rows"],
)
def test_columns_of_last_bits_or_few_values_are_left_out(
    scale: float, shape: tuple[int, ...]
) -> None:
    want = faint_column(scale, shape)
    assert error_share(np.abs(without_last_column(want) - want), want) <= WRONG


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float8_e4m3fn", "int32"])
def test_small_dtypes_have_no_faint_columns(dtype: str) -> None:
    stored = {"bfloat16": ml_dtypes.bfloat16, "float8_e4m3fn": ml_dtypes.float8_e4m3fn}
    want = faint_column(1e-3).astype(stored.get(dtype, dtype))
    apart = np.abs(without_last_column(want).astype("f4") - want.astype("f4"))
    assert error_share(apart, want) <= WRONG


def test_masked_and_missing_values_do_not_count() -> None:
    want = faint_column(1e-4)
    want[0], want[1] = -np.inf, np.nan
    apart = np.zeros(want.shape, np.float32)
    assert error_share(apart, want) == 0
    apart[2:, -1] = np.abs(want[2:, -1])
    assert error_share(apart, want) == pytest.approx(1, rel=1e-4)

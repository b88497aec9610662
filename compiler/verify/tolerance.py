"""Compares an output with its reference, by tolerances that belong to its dtype."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from relaxd.contract.tensors import STORAGE

_LEAST_RANGE = 1e-2
"""Outputs smaller than this may be the noise of sums that cancel: a difference that is small beside
this range, but not beside the outputs, is no evidence of a fault, nor of its absence."""


@dataclass(frozen=True)
class Tolerance:
    """|got - want| may reach atol * range + rtol * |want| + slack; the range is the largest finite
    |want|.

    mean: what the mean of |got - want| may reach of the range; steps: by how much integers may
    differ.
    """

    atol: float
    rtol: float
    mean: float = math.inf
    steps: int = 0
    slack: float = 0.0


_TOLERANCES = {
    "float16": Tolerance(1e-2, 1e-2),
    "bfloat16": Tolerance(5e-2, 5e-2),
    "float32": Tolerance(1e-4, 1e-3),
    "float64": Tolerance(1e-6, 1e-6),
    # One step, which a number close to the middle of two may take either way.
    "float8_e4m3fn": Tolerance(1e-3, 0.13),
    "float8_e4m3fnuz": Tolerance(1e-3, 0.13),
    "float8_e5m2": Tolerance(1e-4, 0.26),
    "float8_e5m2fnuz": Tolerance(1e-4, 0.26),
    "float8_e8m0fnu": Tolerance(0.0, 1.0),
    "float4_e2m1fn": Tolerance(0.1, 0.5),
}
_EXACT = Tolerance(0.0, 0.0)
_ONE_STEP = Tolerance(0.0, 0.0, steps=1)
_QUANTIZED = Tolerance(0.25, 0.0, mean=0.03)
_NARROW_INTEGERS = ("uint4", "int4", "uint2", "int2")
_FEW_BITS = ("uint8", "int8", "uint16", "int16", *_NARROW_INTEGERS)


@dataclass(frozen=True)
class Difference:
    """max_abs: greatest difference over elements finite on both sides; max_rel: of those that stand
    out from atol, the relative one.

    problem: what is wrong, None when nothing is. range: the largest finite |want| of floats.
    undecided: why the comparison proves nothing, although nothing is known to be wrong; else None.
    of_tolerance: how much of what is allowed the element uses that uses the most of it; None where
    nothing is allowed, and elements differ.
    """

    max_abs: float
    max_rel: float
    problem: str | None
    range: float = 0.0
    undecided: str | None = None
    of_tolerance: float | None = None


def known_tolerances() -> dict[str, Tolerance]:
    """By dtype, those that are not exact."""
    return dict(_TOLERANCES)


def tolerance_of(
    dtype: str, atol: float | None, rtol: float | None, quantized: bool = False
) -> Tolerance:
    """The dtype's tolerance, a given atol or rtol in its place; integers and booleans are exact.

    quantized: activations are rounded to some eight bits on the way. A sum that falls on the other
    side of a half moves
    one of them by a step, and what follows it with it: integers of few bits may be one step off,
    and floats are held in the mean. ONNX Runtime's own optimisation levels differ by 7 % of the
    range, 1.2 % in the mean, on MiniLM.
    """
    own = _TOLERANCES.get(dtype)
    if own is None:
        return _ONE_STEP if quantized and dtype in _FEW_BITS else _EXACT
    own = _QUANTIZED if quantized and dtype not in STORAGE else own
    return Tolerance(
        own.atol if atol is None else atol, own.rtol if rtol is None else rtol, own.mean
    )


def compare(
    got: np.ndarray[Any, Any], want: np.ndarray[Any, Any], tolerance: Tolerance
) -> Difference:
    """Shapes and dtypes must be equal, infinities and NaNs at the same places, the rest within
    tolerance.
    """
    if got.dtype != want.dtype:
        return Difference(0.0, 0.0, f"dtype {got.dtype} where the reference has {want.dtype}")
    if got.shape != want.shape:
        return Difference(
            0.0, 0.0, f"shape {list(got.shape)} where the reference has {list(want.shape)}"
        )
    if not got.size:
        return Difference(0.0, 0.0, None, of_tolerance=0.0)
    if want.dtype.kind in "biu" or want.dtype.name in _NARROW_INTEGERS:
        steps = np.abs(got.astype(np.float64) - want.astype(np.float64))
        wrong, apart = (
            int(np.count_nonzero((got != want) & ~((steps > 0) & (steps <= tolerance.steps)))),
            float(steps.max()),
        )
        problem = f"{wrong} of {got.size} elements differ" if wrong else None
        used = _used(steps, np.full_like(steps, tolerance.steps))
        return Difference(apart, 0.0, problem, of_tolerance=used)
    ours, theirs = got.astype(np.float64), want.astype(np.float64)
    finite = np.isfinite(ours) & np.isfinite(theirs)
    odd = _odd_places(ours[~finite], theirs[~finite])
    ours, theirs = ours[finite], theirs[finite]
    if not ours.size:
        return Difference(0.0, 0.0, odd, of_tolerance=None if odd else 0.0)
    apart = np.abs(ours - theirs)
    largest = float(np.abs(theirs).max())
    span = max(largest, _LEAST_RANGE)
    allowed = tolerance.atol * largest + tolerance.rtol * np.abs(theirs) + tolerance.slack
    outside = int(np.count_nonzero(apart > allowed))
    large = np.abs(theirs) > tolerance.atol * largest
    far = f"{outside} of {got.size} elements differ by more than the tolerance" if outside else None
    undecided = None
    if far and largest < _LEAST_RANGE and apart.max() <= tolerance.atol * _LEAST_RANGE:
        far, undecided = None, f"the reference's values reach {largest:.1e} at most"
    if apart.mean() > tolerance.mean * span:
        far = (
            far
            or f"the mean difference is {apart.mean() / span:.1%} of the range, more than the "
            "tolerance"
        )
    return Difference(
        float(apart.max()),
        float((apart[large] / np.abs(theirs[large])).max(initial=0.0)),
        odd or far,
        largest,
        undecided,
        None if odd else _used(apart, allowed),
    )


def _used(apart: np.ndarray[Any, Any], allowed: np.ndarray[Any, Any]) -> float | None:
    differs = apart > 0
    if not allowed[differs].all():
        return None
    return float((apart[differs] / allowed[differs]).max(initial=0.0))


def _odd_places(ours: np.ndarray[Any, Any], theirs: np.ndarray[Any, Any]) -> str | None:
    wrong = int(np.count_nonzero(~((ours == theirs) | (np.isnan(ours) & np.isnan(theirs)))))
    return f"{wrong} elements are infinite or NaN on one side alone" if wrong else None

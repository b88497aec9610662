"""Judges an output that departs from its reference by what is known of the reference's own
uncertainty: an evaluation in float64, and the reference with perturbed inputs and weights.

The distance of perturbed references from the reference is its noise. Where some times the noise is
less than a tenth of the output's spread, every element is compared, with that much more allowed;
else the root mean square of all differences is, and of those in each row, column and channel, with
what perturbed references have.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from compiler.verify.tolerance import Difference, Spread, Tolerance, compare
from relaxd.contract.numerics import Verdict

Array = np.ndarray[Any, Any]

NOISE_TIMES = 4.0
"""How many times the noise an element may be off: it is the greatest of few samples, and a kernel's
own rounding, such as that of Winograd's form, is up to some times that of plain sums."""
EXACT_TIMES = 2.0
"""How many times the reference's own distance from float64 the library's may be."""
RMS_TIMES = 2.0
"""How many times the noise's root mean square that of the differences may be. References of equal
roundings are within 1.25 times of each other."""
GROUP_TIMES = 3.0
"""The same of one row, column or channel, beside the noisiest of them."""
MOST_NOISE = 0.5
"""The share of the spread that RMS_TIMES the noise may be: above it, nothing is shown. A constant
output's error is the spread itself."""
MOST_CHANGED = 0.25
"""The share of integers that perturbations may change: above it, nothing is shown."""
_SMALL_GROUP = 16
"""Elements at least whose differences are taken together."""


@dataclass(frozen=True)
class Evidence:
    """What others answered where the reference answered, for one output.

    exact: in float64; perturbed: by the reference with inputs and weights moved by some ulp, or
    with numbers moved before they are quantized. strict: the request states its own tolerance, to
    which nothing is added.
    """

    exact: tuple[Array, ...] = ()
    perturbed: tuple[Array, ...] = ()
    strict: bool = False


@dataclass(frozen=True)
class Finding:
    """What the evidence shows. slack: the most that was allowed beside the tolerance; why: in a
    half sentence, for people; measures: as `relaxd.contract.report.Evidence` has them.
    """

    verdict: Verdict
    difference: Difference
    slack: float = 0.0
    why: str = ""
    measures: dict[str, Any] = field(default_factory=dict)


def judge_beside(
    got: Array, want: Array, evidence: Evidence, tolerance: Tolerance, spread: Spread
) -> Finding:
    """Judge an output by its reference and the evidence; tolerance: bound by the spread.

    Without evidence this is `compare`. Beside the same evidence, a greater error of the same signs
    is never judged better.
    """
    difference = compare(got, want, tolerance)
    if difference.structural or not difference.problem:
        verdict = Verdict.FAILED if difference.problem else Verdict.PASSED
        return Finding(verdict, difference)
    alike = [one for one in evidence.perturbed if one.shape == want.shape]
    exact = [narrow(one, want) for one in evidence.exact if one.shape == want.shape]
    measures = {"samples": len(alike), **_measures(got, want, exact, alike)}
    inexact = bool(exact) and bool(compare(want, exact[0], tolerance).problem)
    known = replace(evidence, exact=tuple(exact), perturbed=tuple(alike))
    found = _candidates(got, want, known, tolerance, spread, inexact=inexact)
    best = min(found, key=lambda finding: _ORDER.index(finding.verdict))
    if best.verdict is Verdict.FAILED:
        best = replace(next(iter(found)), why=_who(exact, inexact=inexact))
    problem = best.difference.problem if best.verdict is Verdict.FAILED else None
    kept = replace(
        difference,
        problem=problem and difference.problem,
        of_tolerance=best.difference.of_tolerance,
    )
    return replace(best, difference=kept, measures={**measures, **best.measures})


_ORDER = (
    Verdict.PASSED,
    Verdict.REFERENCE_INEXACT,
    Verdict.STATISTICAL,
    Verdict.INCONCLUSIVE,
    Verdict.FAILED,
)


def _candidates(
    got: Array,
    want: Array,
    evidence: Evidence,
    tolerance: Tolerance,
    spread: Spread,
    *,
    inexact: bool,
) -> list[Finding]:
    """Judged by the reference, and by each evaluation in float64, which is in the output's dtype.

    inexact: whether float64 shows that the reference departs by more than the tolerance.
    """
    exact, perturbed = evidence.exact, () if evidence.strict else evidence.perturbed
    if not _has_distances(want, tolerance):
        return [
            _judge_integers(got, want, perturbed),
            *(_same(got, one, Verdict.REFERENCE_INEXACT) for one in exact),
        ]
    noise = _row_maxima([_distances(one, want) for one in perturbed], want.shape)
    judged = [_judge_floats(got, want, perturbed, noise, tolerance, spread)]
    for one in exact:
        own = EXACT_TIMES / NOISE_TIMES * _row_maxima([_distances(want, one)], want.shape)
        own = np.zeros(want.shape) if evidence.strict else own
        finding = _judge_floats(got, one, perturbed, np.maximum(noise, own), tolerance, spread)
        if finding.verdict is Verdict.PASSED and inexact:
            finding = replace(finding, verdict=Verdict.REFERENCE_INEXACT)
        judged.append(finding)
    return judged


def narrow(exact: Array, want: Array) -> Array:
    """An evaluation in float64 in the reference's dtype; what overflows it is infinite."""
    with np.errstate(over="ignore"):
        return exact.astype(want.dtype)


def _has_distances(want: Array, tolerance: Tolerance) -> bool:
    """Whether elements may be near to each other: floats, and integers that stand for some."""
    return "float" in want.dtype.name or tolerance.steps > 0


def _judge_floats(
    got: Array,
    target: Array,
    perturbed: Sequence[Array],
    noise: Array,
    tolerance: Tolerance,
    spread: Spread,
) -> Finding:
    """noise: by element."""
    ours, theirs = got.astype(np.float64), target.astype(np.float64)
    finite = np.isfinite(ours) & np.isfinite(theirs)
    difference = compare(got, target, tolerance)
    if not _same_odd_places(ours, theirs, finite):
        return Finding(Verdict.FAILED, difference)
    apart = np.where(finite, _distances(got, target), 0.0)
    known = np.where(finite, theirs, spread.center)
    usual, bounds = tolerance.usual(known), tolerance.bounds(known)
    wanted = usual + NOISE_TIMES * noise
    slack = np.minimum(NOISE_TIMES * noise, tolerance.most)
    allowed = np.minimum(usual + slack, bounds)
    outside = apart > allowed
    noises = [_rms(_distances(one, target)) for one in perturbed]
    times = RMS_TIMES * (1 + 2 / math.sqrt(got.size))
    most = times * max(noises, default=0.0)
    if not outside.any() and _rms(apart) <= max(most, _rms(usual)):
        used = float((apart / np.where(allowed > 0, allowed, 1)).max())
        difference = replace(difference, of_tolerance=used)
        return Finding(Verdict.PASSED, difference, float(slack.max()))
    if not perturbed or (outside & (wanted <= allowed)).any() or _rms(apart) > most:
        return Finding(Verdict.FAILED, difference)
    return _judge_together(apart, perturbed, target, most, difference, spread)


def _judge_together(
    apart: Array,
    perturbed: Sequence[Array],
    target: Array,
    most: float,
    difference: Difference,
    spread: Spread,
) -> Finding:
    """Judge an output whose elements cannot be compared one by one, and whose error is in all no
    greater than `most`.
    """
    difference = replace(difference, of_tolerance=None)
    if most > MOST_NOISE * (spread.standard or spread.scale):
        why = "perturbing inputs and weights by some ulp moves the reference as far as its spread"
        return Finding(Verdict.INCONCLUSIVE, difference, why=why)
    sides = [_distances(one, target) for one in perturbed]
    for axis in _grouping_axes(target.shape):
        errors = _group_rms(apart, axis)
        noisiest = max(float(_group_rms(side, axis).max()) for side in sides)
        times = GROUP_TIMES * (1 + 2 / math.sqrt(apart.size / errors.size))
        if (errors > times * noisiest).any():
            return Finding(Verdict.FAILED, difference)
    why = (
        "it cannot be compared element by element: equal roundings differ by a tenth of its spread"
    )
    return Finding(Verdict.STATISTICAL, difference, why=why)


def _judge_integers(got: Array, want: Array, perturbed: Sequence[Array]) -> Finding:
    """Indices and booleans that follow from floats may change with these."""
    difference = compare(got, want, Tolerance(0.0, 0.0))
    changed = max((float((one != want).mean()) for one in perturbed), default=0.0)
    differing = float((got != want).mean())
    measures = {"changed": differing, "perturbed_changed": changed}
    allowed = RMS_TIMES * changed * (1 + 2 / math.sqrt(max(changed * want.size, 1.0)))
    if not changed or differing > allowed:
        return Finding(Verdict.FAILED, difference, measures=measures)
    verdict = Verdict.INCONCLUSIVE if changed > MOST_CHANGED else Verdict.STATISTICAL
    why = "perturbing inputs and weights by some ulp changes as many of its elements"
    return Finding(verdict, difference, why=why, measures=measures)


def _same(got: Array, exact: Array, verdict: Verdict) -> Finding:
    difference = compare(got, exact, Tolerance(0.0, 0.0))
    return Finding(Verdict.FAILED if difference.problem else verdict, difference)


def _who(exact: Sequence[Array], *, inexact: bool) -> str:
    if not exact:
        return "there is no evaluation in float64 to compare with"
    return "float64 departs from both" if inexact else "float64 agrees with the reference"


def _measures(
    got: Array, want: Array, exact: Sequence[Array], perturbed: Sequence[Array]
) -> dict[str, Any]:
    """Distances for the report; of integers too, as their values are."""
    found: dict[str, Any] = {
        "error_rms": _finite(_rms(_distances(got, want))),
        "correlation": _correlation(got, want),
    }
    if perturbed:
        sides = [_distances(one, want) for one in perturbed]
        found["noise"] = _finite(max(float(side.max(initial=0.0)) for side in sides))
        found["noise_rms"] = _finite(max(_rms(side) for side in sides))
    if exact:
        nearest = exact[0]
        found["library_error"] = _finite(float(_distances(got, nearest).max(initial=0.0)))
        found["reference_error"] = _finite(float(_distances(want, nearest).max(initial=0.0)))
    return found


def _correlation(got: Array, want: Array) -> float | None:
    """Pearson's, of the elements finite on both sides; None where one of them is constant."""
    ours, theirs = got.astype(np.float64).reshape(-1), want.astype(np.float64).reshape(-1)
    finite = np.isfinite(ours) & np.isfinite(theirs)
    ours, theirs = ours[finite], theirs[finite]
    if ours.size < 2 or ours.min() == ours.max() or theirs.min() == theirs.max():
        return None
    with np.errstate(all="ignore"):
        return _finite(float(np.corrcoef(ours, theirs)[0, 1]))


def _distances(one: Array, other: Array) -> Array:
    """|one - other| of float64; 0 where both are the same infinity or NaN, infinite where one side
    alone is finite.
    """
    left, right = one.astype(np.float64), other.astype(np.float64)
    with np.errstate(invalid="ignore", over="ignore"):
        apart = np.abs(left - right)
    same = (left == right) | (np.isnan(left) & np.isnan(right))
    return np.asarray(np.where(same, 0.0, np.where(np.isnan(apart), np.inf, apart)))


def _same_odd_places(ours: Array, theirs: Array, finite: Array) -> bool:
    left, right = ours[~finite], theirs[~finite]
    return bool(((left == right) | (np.isnan(left) & np.isnan(right))).all())


def _row_maxima(sides: Sequence[Array], shape: tuple[int, ...]) -> Array:
    """By element the greatest of all sides in its row: the last axis, or as many axes as hold some
    elements.
    """
    if not sides or not math.prod(shape):
        return np.zeros(shape)
    columns, axis = 1, len(shape)
    while axis and columns < _SMALL_GROUP:
        axis -= 1
        columns *= shape[axis]
    rows = np.max(sides, axis=0).reshape(-1, columns).max(axis=1)
    return np.repeat(rows, columns).reshape(shape)


def _rms(apart: Array) -> float:
    """The root mean square, safe from overflow."""
    largest = float(apart.max(initial=0.0))
    if not largest or not math.isfinite(largest):
        return largest
    return largest * math.sqrt(float(np.square(apart / largest).mean()))


def _grouping_axes(shape: tuple[int, ...]) -> Iterator[int]:
    size = math.prod(shape)
    for axis, extent in enumerate(shape):
        if extent > 1 and size // extent >= _SMALL_GROUP:
            yield axis


def _group_rms(apart: Array, axis: int) -> Array:
    """Of the elements at each position of the axis."""
    others = tuple(other for other in range(apart.ndim) if other != axis)
    return np.asarray(np.sqrt(np.square(apart).mean(axis=others)))


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None

"""Judges an output that departs from its reference by what is known of the reference's own
uncertainty: an evaluation in float64, and the reference with perturbed inputs and weights.

The distance of perturbed references from the reference is its noise. Where some times the noise is
less than a tenth of the output's spread, every element is compared, with that much more allowed;
else the root mean square of all differences is, and of those in each row, column and channel, with
what perturbed references have.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from compiler.verify.judge.groups import SMALL_GROUP, WRONG, error_share, grouping_axes
from compiler.verify.judge.tolerance import Difference, Spread, Tolerance, compare, tolerance_of
from relaxd.contract.bundle.numerics import Verdict

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
FEW_ROWS = 1 / 16
"""The share of rows that may be ill-conditioned by themselves. Where more are, a row that no
perturbed reference moves far may still be one that the library's own roundings do: every row then
has the noise of the noisiest."""
_BLOCK = 1 << 16
"""Elements of an output for which temporary arrays are made at a time: they stay in a processor's
cache, where those of a whole output take new memory each time.
"""
_ORDER = (
    Verdict.PASSED,
    Verdict.REFERENCE_INEXACT,
    Verdict.STATISTICAL,
    Verdict.INCONCLUSIVE,
    Verdict.FAILED,
)


@dataclass(frozen=True)
class Indexed:
    """Values that the elements of an output index along an axis: those of the reference, and of
    perturbed references.
    """

    values: Array
    axis: int
    perturbed: tuple[Array, ...] = ()


@dataclass(frozen=True)
class Evidence:
    """Answers of others where the reference answered, for an output.

    exact: in float64; perturbed: by the reference with inputs and weights moved by some ulp, or
    with numbers moved before they are quantized. inexactness: the greatest distance of the
    reference from float64 at other points, and its root mean square. strict: the request states its
    own tolerance, to which nothing is added. indexed: of an output of indices, what these point
    into.
    """

    exact: tuple[Array, ...] = ()
    perturbed: tuple[Array, ...] = ()
    inexactness: tuple[float, float] = (0.0, 0.0)
    strict: bool = False
    indexed: Indexed | None = None


@dataclass(frozen=True)
class Finding:
    """The verdict on an output. slack: the most that was allowed beside the tolerance; why: in a
    half sentence, for people; measures: as `relaxd.contract.bundle.report.Evidence` has them.
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
    compared = compare(got, want, tolerance)
    difference = compare_groups(got, want, compared, strict=evidence.strict)
    if difference.structural or not difference.problem:
        verdict = Verdict.FAILED if difference.problem else Verdict.PASSED
        return Finding(verdict, difference)
    perturbed = () if evidence.strict else evidence.perturbed
    alike = [answer for answer in perturbed if answer.shape == want.shape]
    exact = [cast_like(answer, want) for answer in evidence.exact if answer.shape == want.shape]
    inexact = bool(exact) and bool(compare(want, exact[0], tolerance).problem)
    if _has_distances(want, tolerance):
        alike_only = replace(evidence, perturbed=tuple(alike))
        reference = _Reference.of(want, alike_only, tolerance, spread)
        apart = _distances(got, want)
        by_float64 = [_name(reference.judge(got, answer), inexact=inexact) for answer in exact]
        findings = [reference.judge(got, want, apart, compared), *by_float64]
        measures = reference.measures(got, apart, exact)
    else:
        by_float64 = [_judge_equal(got, answer) for answer in exact]
        by_values = _judge_indexed(got, want, evidence.indexed)
        findings = [by_values or _judge_integers(got, want, alike), *by_float64]
        measures = {}
    best = min(findings, key=lambda finding: _ORDER.index(finding.verdict))
    if best.verdict is Verdict.FAILED:
        best = replace(findings[0], why=_who(exact, inexact=inexact))
    if best.verdict is Verdict.STATISTICAL and "float" in want.dtype.name:
        best = replace(best, measures=_argmax_measures(got, want, alike))
    problem = difference.problem if best.verdict is Verdict.FAILED else None
    shown = replace(difference, problem=problem, of_tolerance=best.difference.of_tolerance)
    reported = {"samples": len(alike), **measures, **best.measures}
    return replace(best, difference=shown, measures=reported)


def compare_groups(got: Array, want: Array, difference: Difference, *, strict: bool) -> Difference:
    """Where every element is within the tolerance, compare rows, columns and channels with their
    own values. strict: as in `Evidence`.
    """
    if strict or difference.structural or difference.problem or not difference.max_abs:
        return difference
    share = error_share(_distances(got, want), want)
    if share <= WRONG:
        return difference
    problem = f"a row, column or channel is off by {share:.2g} of its own values"
    return replace(difference, problem=problem)


def _name(finding: Finding, *, inexact: bool) -> Finding:
    """Say that the reference is inexact, where the output passes by float64 and it does not."""
    passes = finding.verdict is Verdict.PASSED and inexact
    return replace(finding, verdict=Verdict.REFERENCE_INEXACT) if passes else finding


def _who(exact: Sequence[Array], *, inexact: bool) -> str:
    if not exact:
        return "the model could not be evaluated in float64"
    return "float64 deviates from both" if inexact else "float64 agrees with the reference"


def cast_like(exact: Array, want: Array) -> Array:
    """Cast an evaluation in float64 to the reference's dtype; what overflows it is infinite."""
    with np.errstate(over="ignore"):
        return exact.astype(want.dtype)


def _has_distances(want: Array, tolerance: Tolerance) -> bool:
    """Tell whether elements may be near to each other: floats, and integers that stand for some."""
    return "float" in want.dtype.name or tolerance.steps > 0


@dataclass(frozen=True)
class _Counted:
    """outside: whether an element is off by more than is allowed; beyond_noise: whether one is that
    could be compared; used: the largest share of what is allowed; usual: the root mean square of
    what is allowed without noise.
    """

    outside: bool = False
    beyond_noise: bool = False
    used: float = 0.0
    usual: float = 0.0


@dataclass(frozen=True)
class _Reference:
    """The reference's output `want`, of floats, and how far it is uncertain.

    sides: the distances of perturbed references from it; noises: the root mean square of each;
    noise: the greatest of them in each row, or in all where many rows are noisy; columns: elements
    of a row; least: the root mean square of noise that the reference is known to have.
    """

    want: Array
    sides: tuple[Array, ...]
    noises: tuple[float, ...]
    noise: Array
    columns: int
    least: float
    tolerance: Tolerance
    spread: Spread
    strict: bool

    @classmethod
    def of(
        cls,
        want: Array,
        evidence: Evidence,
        tolerance: Tolerance,
        spread: Spread,
    ) -> "_Reference":
        """Measure the noise of perturbed references."""
        sides = tuple(_distances(answer, want) for answer in evidence.perturbed)
        columns, (largest, square) = _columns(want.shape), evidence.inexactness
        share = 0.0 if evidence.strict else EXACT_TIMES / NOISE_TIMES
        noise = np.full(want.size // columns, share * largest, np.float32)
        for side in sides:
            noise = np.maximum(noise, side.reshape(-1, columns).max(axis=1))
        usual = tolerance.steps + tolerance.atol * _largest(want)
        if (NOISE_TIMES * noise > usual).mean() > FEW_ROWS:
            noise = np.full_like(noise, noise.max())
        least = EXACT_TIMES / RMS_TIMES * square
        noises = tuple(map(_rms, sides))
        return cls(want, sides, noises, noise, columns, least, tolerance, spread, evidence.strict)

    def judge(
        self,
        got: Array,
        target: Array,
        apart: Array | None = None,
        difference: Difference | None = None,
    ) -> Finding:
        """Judge by the reference itself, or by an evaluation in float64 in the output's dtype: its
        distance from the reference is then allowed too. apart, difference: `_distances` of both,
        and `compare`, if known.
        """
        difference = difference or compare(got, target, self.tolerance)
        apart = _distances(got, target) if apart is None else apart
        if _non_finite_differ(got, target):
            return Finding(Verdict.FAILED, difference)
        noise, own = self.noise, 0.0
        if target is not self.want and not self.strict:
            beside = _distances(self.want, target)
            rows = beside.reshape(-1, self.columns).max(axis=1)
            noise = np.maximum(noise, np.float32(EXACT_TIMES / NOISE_TIMES) * rows)
            own = EXACT_TIMES * _rms(beside)
        error = _rms(apart)
        most = RMS_TIMES * (1 + 2 / math.sqrt(got.size)) * max([self.least, *self.noises])
        counted = self._count(apart, target, noise)
        if not counted.outside and error <= max(most, own, counted.usual):
            if self._is_wrong_in_groups(apart, target):
                return Finding(Verdict.FAILED, difference)
            slack = min(NOISE_TIMES * float(noise.max()), self.tolerance.most)
            return Finding(Verdict.PASSED, replace(difference, of_tolerance=counted.used), slack)
        if not self.sides or counted.beyond_noise or error > most:
            return Finding(Verdict.FAILED, difference)
        return self._judge_statistics(apart, most, replace(difference, of_tolerance=None))

    def _is_wrong_in_groups(self, apart: Array, target: Array) -> bool:
        """Tell whether a group is wrong as a whole, by more than the references' own are."""
        share = 0.0 if self.strict else error_share(apart, target)
        if share <= WRONG:
            return False
        others = [error_share(side, self.want) for side in self.sides]
        if target is not self.want:
            others.append(error_share(_distances(self.want, target), target))
        return share > GROUP_TIMES * max(others, default=0.0)

    def _count(self, apart: Array, target: Array, noise: Array) -> _Counted:
        """Count by blocks of rows: temporary arrays of all of an output may be too large."""
        rows, counted, square = max(_BLOCK // self.columns, 1), _Counted(), 0.0
        flat, wanted = apart.reshape(-1, self.columns), target.reshape(-1, self.columns)
        largest = _largest(target)
        for first in range(0, len(flat), rows):
            part = slice(first, first + rows)
            block = wanted[part].astype(np.float64)
            block = np.where(np.isfinite(block), block, self.spread.center)
            usual = self.tolerance.usual(block, largest)
            slack = NOISE_TIMES * noise[part, None].astype(np.float64)
            allowed = np.minimum(
                usual + np.minimum(slack, self.tolerance.most),
                self.tolerance.bounds(block, largest),
            )
            outside = flat[part] > allowed
            used = flat[part] / np.where(allowed > 0, allowed, 1)
            square += float(np.square(usual).sum())
            counted = _Counted(
                counted.outside or bool(outside.any()),
                counted.beyond_noise or bool((outside & (usual + slack <= allowed)).any()),
                max(counted.used, float(used.max(initial=0.0))),
            )
        usual_rms = math.sqrt(square / max(target.size, 1))
        most = self.tolerance.most if self.tolerance.coarse else math.inf
        return replace(counted, usual=min(usual_rms, most))

    def _judge_statistics(self, apart: Array, most: float, difference: Difference) -> Finding:
        """Judge an output whose elements cannot be compared one by one, and whose error is in all
        no greater than `most`.
        """
        if most > MOST_NOISE * (self.spread.standard or self.spread.scale):
            why = "it is ill-conditioned: some ulp move the reference as far as its spread"
            return Finding(Verdict.INCONCLUSIVE, difference, why=why)
        known, *others = (_Squares.of(side) for side in (apart, *self.sides))
        for axis in grouping_axes(apart.shape):
            errors = known.group_rms(axis)
            noisiest = max(float(side.group_rms(axis).max()) for side in others)
            times = GROUP_TIMES * (1 + 2 / math.sqrt(apart.size / errors.size))
            if (errors > times * noisiest).any():
                return Finding(Verdict.FAILED, difference)
        why = "it cannot be compared element by element: roundings move it by a tenth of its spread"
        return Finding(Verdict.STATISTICAL, difference, why=why)

    def measures(self, got: Array, apart: Array, exact: Sequence[Array]) -> dict[str, Any]:
        """Return distances for the report; apart: `_distances` from the reference."""
        result: dict[str, Any] = {
            "error_rms": _finite(_rms(apart)),
            "correlation": _correlation(got, self.want),
        }
        if self.sides:
            result["noise"] = _finite(float(self.noise.max(initial=0.0)))
            result["noise_rms"] = _finite(max(self.noises))
        if exact:
            ours, theirs = (_distances(side, exact[0]) for side in (got, self.want))
            result["library_error"] = _finite(float(ours.max(initial=0.0)))
            result["reference_error"] = _finite(float(theirs.max(initial=0.0)))
            result["reference_rms"] = _finite(_rms(theirs))
        return result


def _judge_integers(got: Array, want: Array, perturbed: Sequence[Array]) -> Finding:
    """Judge indices and booleans that follow from floats, and may change with these."""
    difference = compare(got, want, Tolerance(0.0, 0.0))
    changed = max((float((answer != want).mean()) for answer in perturbed), default=0.0)
    differing = float((got != want).mean())
    measures = {"changed": differing, "perturbed_changed": changed}
    allowed = RMS_TIMES * changed * (1 + 2 / math.sqrt(max(changed * want.size, 1.0)))
    if not changed or differing > allowed:
        return Finding(Verdict.FAILED, difference, measures=measures)
    verdict = Verdict.INCONCLUSIVE if changed > MOST_CHANGED else Verdict.STATISTICAL
    why = "perturbed inputs and weights change as many of its elements"
    return Finding(verdict, difference, why=why, measures=measures)


def _judge_indexed(got: Array, want: Array, indexed: Indexed | None) -> Finding | None:
    """Judge indices by what they point into: equal within the tolerance of such values and some
    times their noise. None where there are no such values, or where noise exceeds what a tolerance
    may be.
    """
    if indexed is None or "float" not in indexed.values.dtype.name or not indexed.values.ndim:
        return None
    values, axis = indexed.values.astype(np.float64), indexed.axis % indexed.values.ndim
    shape = [-1 if index == axis else size for index, size in enumerate(values.shape)]
    if 0 in values.shape or want.size % math.prod(size for size in shape if size > 0):
        return None
    spread = Spread.of(values)
    tolerance = tolerance_of(indexed.values.dtype.name, None, None)
    # Of a few values, all of them may be the equal ones.
    tolerance = spread.limit_to_scale(tolerance) if spread.tells else tolerance
    alike = [answer for answer in indexed.perturbed if answer.shape == values.shape]
    noises = [_distances(answer, values).max(axis=axis, keepdims=True) for answer in alike]
    slack = NOISE_TIMES * np.max(noises, axis=0) if noises else np.zeros(1)
    if slack.max() > tolerance.most:
        return None
    difference = compare(got, want, Tolerance(0.0, 0.0))
    failed = Finding(Verdict.FAILED, difference)
    ours, theirs = got.reshape(shape), want.reshape(shape)
    if ours.min() < 0 or ours.max() >= values.shape[axis] or _has_repeats(ours, axis):
        return failed
    ours, theirs = (np.take_along_axis(values, side, axis) for side in (ours, theirs))
    finite = np.where(np.isfinite(theirs), theirs, spread.center)
    if (_distances(ours, theirs) > tolerance.by_element(finite) + slack).any():
        return failed
    measures = {"changed": float((got != want).mean())}
    why = "where indices differ, they are of values that are equal within the tolerance"
    return Finding(Verdict.PASSED, replace(difference, of_tolerance=None), 0.0, why, measures)


def _has_repeats(indices: Array, axis: int) -> bool:
    """Tell whether an index occurs twice along the axis."""
    return bool((np.diff(np.sort(indices, axis=axis), axis=axis) == 0).any())


def _argmax_measures(got: Array, want: Array, perturbed: Sequence[Array]) -> dict[str, Any]:
    """Return in how many rows the greatest element is at the reference's index: of the library, and
    the least of perturbed references; nothing where there are no rows.
    """
    if want.ndim < 2 or want.shape[-1] < 2:
        return {}
    indices = [side.reshape(-1, want.shape[-1]).argmax(axis=1) for side in (want, got, *perturbed)]
    shares = [float((rows == indices[0]).mean()) for rows in indices[1:]]
    return {"argmax": shares[0], "perturbed_argmax": min(shares[1:])}


def _judge_equal(got: Array, exact: Array) -> Finding:
    difference = compare(got, exact, Tolerance(0.0, 0.0))
    verdict = Verdict.FAILED if difference.problem else Verdict.REFERENCE_INEXACT
    return Finding(verdict, difference)


def _non_finite_differ(got: Array, target: Array) -> bool:
    odd = ~(np.isfinite(got) & np.isfinite(target))
    ours, theirs = got[odd].astype(np.float64), target[odd].astype(np.float64)
    return not bool(((ours == theirs) | (np.isnan(ours) & np.isnan(theirs))).all())


def _largest(target: Array) -> float:
    finite = target
    if target.size and not (np.isfinite(target.max()) and np.isfinite(target.min())):
        finite = np.where(np.isfinite(target), target, np.zeros((), target.dtype))
    return float(max(finite.max(initial=0), -finite.min(initial=0)))


def _correlation(got: Array, want: Array) -> float | None:
    """Return Pearson's, of elements finite on both sides; None where a side is constant."""
    ours, theirs = got.reshape(-1), want.reshape(-1)
    finite = np.isfinite(ours) & np.isfinite(theirs)
    if not finite.all():
        ours, theirs = ours[finite], theirs[finite]
    if ours.size < 2 or ours.min() == ours.max() or theirs.min() == theirs.max():
        return None
    centers = [float(side.mean(dtype=np.float64)) for side in (ours, theirs)]
    moments = np.zeros((2, 2))
    with np.errstate(all="ignore"):
        for first in range(0, ours.size, _BLOCK):
            part = slice(first, first + _BLOCK)
            block = np.array([ours[part], theirs[part]], np.float64) - np.array(centers)[:, None]
            moments += block @ block.T
        return _finite(float(moments[0, 1] / math.sqrt(moments[0, 0] * moments[1, 1])))


def _distances(lhs: Array, rhs: Array) -> Array:
    """Return |lhs - rhs| as float32; 0 where both are the same infinity or NaN, infinite where
    one side alone is finite.
    """
    result = np.empty(rhs.size, np.float32)
    lefts, rights = lhs.reshape(-1), rhs.reshape(-1)
    for first in range(0, result.size, _BLOCK):
        part = slice(first, first + _BLOCK)
        left, right = lefts[part].astype(np.float64), rights[part].astype(np.float64)
        same = (left == right) | (np.isnan(left) & np.isnan(right))
        with np.errstate(invalid="ignore", over="ignore"):
            apart = np.abs(left - right)
            result[part] = np.where(same, 0.0, np.where(np.isnan(apart), np.inf, apart))
    return result.reshape(rhs.shape)


def _columns(shape: tuple[int, ...]) -> int:
    """Return the elements of a row: of the last axis, or of as many axes as hold some elements."""
    columns, axis = 1, len(shape)
    while axis and columns < SMALL_GROUP:
        axis -= 1
        columns *= shape[axis]
    return columns


def _rms(apart: Array) -> float:
    """Return the root mean square, safe from overflow."""
    largest = float(apart.max(initial=0.0))
    if not largest or not math.isfinite(largest):
        return largest
    flat, total = apart.reshape(-1), 0.0
    for first in range(0, flat.size, _BLOCK):
        block = flat[first : first + _BLOCK] / np.float32(largest)
        total += float(np.square(block, out=block).sum(dtype=np.float64))
    return largest * math.sqrt(total / flat.size)


@dataclass(frozen=True)
class _Squares:
    """The squares of distances as shares of the largest, which is kept beside them."""

    largest: float
    squares: Array

    @classmethod
    def of(cls, apart: Array) -> "_Squares":
        """Square in place: a second temporary array of a large output costs as much."""
        largest = float(apart.max(initial=0.0)) or 1.0
        scaled = apart / np.float32(largest)
        return cls(largest, np.square(scaled, out=scaled))

    def group_rms(self, axis: int) -> Array:
        """Return the root mean square at each position of the axis."""
        others = tuple(index for index in range(self.squares.ndim) if index != axis)
        return np.asarray(self.largest * np.sqrt(self.squares.mean(axis=others, dtype=np.float64)))


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None

"""Fits a cost model to timed points: milliseconds as a sum of products of dims."""

from collections.abc import Mapping, Sequence
from itertools import product

import numpy as np
from numpy.typing import NDArray

from compiler.isolation.step import Record

FEWEST_POINTS = 4
_HIGHEST_POWER, _HIGHEST_DEGREE = 2, 3
_FOLDS = 8
_MOST_LEFT = 0.95
"""A term is kept if it brings the error down to this part of what it was."""

Dims = Mapping[str, int]
Term = tuple[int, ...]
"""The power of each dim, in the order of their names."""
Array = NDArray[np.float64]


def fit(points: Sequence[tuple[Dims, float]]) -> Record | None:
    """A `relaxd.contract.bundle.profile.CostModel`, of points with the milliseconds of a call;
    None for too few of them.

    No coefficient is negative, so that an estimate between the points cannot be; errors are
    relative, so that short calls count as much as long ones. Terms are added one by one, as long as
    points that a fit did not see come out clearly better.
    """
    if len(points) < FEWEST_POINTS:
        return None
    names = sorted(points[0][0])
    sizes = np.array([[dims[name] for name in names] for dims, _ in points], np.float64)
    ms = np.array([taken for _, taken in points], np.float64)
    terms = _chosen(sizes, ms)
    columns = _columns(sizes, terms)
    errors = _errors(columns, ms, len(points))
    weights = _fit(columns, ms)
    return {
        "terms": [
            {"ms": float(weight), "dims": _powers(names, term)}
            for term, weight in zip(terms, weights, strict=True)
            if weight > 0
        ],
        "points": len(points),
        "error_median": round(float(np.median(errors)), 4),
        "error_max": round(float(errors.max()), 4),
        "low": {name: int(low) for name, low in zip(names, sizes.min(0), strict=True)},
        "high": {name: int(high) for name, high in zip(names, sizes.max(0), strict=True)},
    }


def _powers(names: Sequence[str], term: Term) -> dict[str, int]:
    return {name: power for name, power in zip(names, term, strict=True) if power}


def _candidates(sizes: Array) -> list[Term]:
    """All products of the dims that vary, of low powers."""
    varies = sizes.min(0) < sizes.max(0)
    powers = [range(_HIGHEST_POWER + 1) if free else range(1) for free in varies]
    terms = [term for term in product(*powers) if sum(term) <= _HIGHEST_DEGREE]
    return sorted(terms, key=lambda term: (sum(term), term))


def _chosen(sizes: Array, ms: Array) -> list[Term]:
    """The terms, beginning with the constant."""
    constant, *others = _candidates(sizes)
    terms = [constant]
    error = _error(sizes, ms, terms)
    while others and len(terms) < max(len(ms) // 2, 2):
        best, term = min((_error(sizes, ms, [*terms, term]), term) for term in others)
        if best > _MOST_LEFT * error:
            break
        terms, error = [*terms, term], best
        others.remove(term)
    return terms


def _error(sizes: Array, ms: Array, terms: Sequence[Term]) -> float:
    return float(_errors(_columns(sizes, terms), ms, min(_FOLDS, len(ms))).mean())


def _columns(sizes: Array, terms: Sequence[Term]) -> Array:
    return np.stack([np.prod(sizes ** np.array(term), axis=1) for term in terms], axis=1)


def _errors(columns: Array, ms: Array, folds: int) -> Array:
    """The relative error of each point, by the fit of the points that are not in its fold."""
    fold = np.arange(len(ms)) % folds
    errors = np.empty(len(ms))
    for left_out in range(folds):
        unseen = fold == left_out
        weights = _fit(columns[~unseen], ms[~unseen])
        errors[unseen] = np.abs(columns[unseen] @ weights - ms[unseen]) / ms[unseen]
    return errors


def _fit(columns: Array, ms: Array) -> Array:
    """The coefficients of the smallest relative squares, none of them negative."""
    scaled = columns / ms[:, None]
    norms = np.linalg.norm(scaled, axis=0)
    norms[norms == 0] = 1.0
    weights: Array = _nonnegative(scaled / norms, np.ones(len(ms))) / norms
    return weights


def _nonnegative(matrix: Array, right: Array) -> Array:
    """min |matrix x - right| over x >= 0, by Lawson and Hanson's active sets (1974)."""
    solution: Array = np.zeros(matrix.shape[1])
    free = np.zeros(len(solution), bool)
    for _ in range(3 * len(solution)):
        gain = np.where(free, -np.inf, matrix.T @ (right - matrix @ solution))
        if gain.max() <= 1e-10:
            break
        free[int(gain.argmax())] = True
        solution = _inside(matrix, right, solution, free)
    return solution


def _inside(matrix: Array, right: Array, solution: Array, free: NDArray[np.bool_]) -> Array:
    """The solution over the free columns; those that it would make negative are held at 0 again,
    one after the other.
    """
    while True:
        best = np.zeros(len(solution))
        best[free] = np.linalg.lstsq(matrix[:, free], right, rcond=None)[0]
        below = free & (best <= 0)
        if not below.any():
            return best
        step = np.min(solution[below] / np.maximum(solution[below] - best[below], 1e-300))
        solution = np.where(free, solution + step * (best - solution), 0.0)
        free &= solution > 1e-12
        solution[~free] = 0.0

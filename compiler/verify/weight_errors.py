"""How far outputs are from those of the model's own weights, where a library has rounded ones."""

from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from compiler.isolation.step import Record

Array = np.ndarray[Any, Any]
_LIKELY = 1e-3
"""How far rows that are probabilities may sum up from 1."""
_BLOCK = 1 << 16
"""Elements that are compared at a time: what is made of them stays in a processor's cache."""


@dataclass
class OutputError:
    """One output over all points, added up point by point.

    apart, square, wanted, gained: sums of |got - want|, of its square, and of the squares of both;
    joint: of the product of both; rows, agreeing, divergence: of the last axis, those with the
    greatest element at one place, and the sum of their Kullback-Leibler divergences. lost: whether
    a number is infinite or NaN on one side alone; the sums are of those that are finite on both.
    """

    name: str
    count: int = 0
    largest: float = 0.0
    apart: float = 0.0
    square: float = 0.0
    wanted: float = 0.0
    gained: float = 0.0
    joint: float = 0.0
    rows: int = 0
    agreeing: int = 0
    divergence: float = 0.0
    lost: bool = False

    def add(self, got: Array, want: Array, *, rows: bool = True) -> None:
        """One point's arrays of equal shape, block by block; rows: compare rows of floats, too."""
        columns = got.shape[-1] if got.ndim > 1 else 1
        has_rows = rows and columns > 1 and want.dtype.kind == "f"
        step = max(_BLOCK // columns, 1) * columns if has_rows else _BLOCK
        lefts, rights = got.reshape(-1), want.reshape(-1)
        for first in range(0, lefts.size, step):
            part = slice(first, first + step)
            ours, theirs = lefts[part].astype(np.float64), rights[part].astype(np.float64)
            if has_rows:
                self._add_rows(ours.reshape(-1, columns), theirs.reshape(-1, columns))
            self._add_elements(ours, theirs)

    def _add_elements(self, ours: Array, theirs: Array) -> None:
        finite = np.isfinite(ours) & np.isfinite(theirs)
        if not finite.all():
            self.lost |= not np.array_equal(ours[~finite], theirs[~finite], equal_nan=True)
            ours, theirs = ours[finite], theirs[finite]
        apart = np.abs(ours - theirs)
        self.count += apart.size
        self.largest = max(self.largest, float(apart.max(initial=0.0)))
        self.apart += float(apart.sum())
        self.square += float(np.dot(apart, apart))
        self.wanted += float(np.dot(theirs, theirs))
        self.gained += float(np.dot(ours, ours))
        self.joint += float(np.dot(ours, theirs))

    def _add_rows(self, ours: Array, theirs: Array) -> None:
        finite = np.isfinite(ours).all(1) & np.isfinite(theirs).all(1)
        if not finite.all():
            ours, theirs = ours[finite], theirs[finite]
        self.rows += len(ours)
        self.agreeing += int(np.count_nonzero(ours.argmax(1) == theirs.argmax(1)))
        p, q = _logarithms(theirs), _logarithms(ours)
        self.divergence += float((np.exp(p) * (p - q)).sum())

    def __add__(self, other: "OutputError") -> "OutputError":
        """Both, of one output."""
        totals = {
            field.name: getattr(self, field.name) + getattr(other, field.name)
            for field in fields(self)
            if field.name not in ("name", "largest", "lost")
        }
        largest = max(self.largest, other.largest)
        return OutputError(self.name, largest=largest, lost=self.lost or other.lost, **totals)

    @property
    def error(self) -> float:
        """Root of the mean square of the differences over that of the reference's values; infinite
        where a number is lost.
        """
        if self.lost:
            return float("inf")
        if self.square == 0:
            return 0.0
        return float(np.sqrt(self.square / self.wanted)) if self.wanted else float("inf")

    def to_json(self) -> Record:
        """A `relaxd.contract.bundle.report.WeightError`."""
        length = np.sqrt(self.wanted * self.gained)
        return {
            "name": self.name,
            "error": _finite(self.error),
            "max_abs": self.largest,
            "mean_abs": self.apart / self.count if self.count else 0.0,
            "cosine": self.joint / length if length else None,
            "argmax": self.agreeing / self.rows if self.rows else None,
            "divergence": max(self.divergence / self.rows, 0.0) if self.rows else None,
        }


def _logarithms(rows: Array) -> Array:
    """Logarithms of probabilities: of the rows themselves if they are some, else of their
    softmaxes.
    """
    tiny = np.finfo(np.float64).tiny
    totals = rows.sum(1)
    if len(rows) and rows.min() >= 0 and np.abs(totals - 1).max() < _LIKELY:
        return np.asarray(np.log(np.maximum(rows / totals[:, None], tiny)))
    moved = rows - rows.max(1, keepdims=True)
    return np.asarray(moved - np.log(np.exp(moved).sum(1, keepdims=True)))


def _finite(value: float) -> float | None:
    return value if np.isfinite(value) else None

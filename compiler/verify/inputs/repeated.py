"""Inputs whose rows repeat: where rows of a batch are computed each by itself, a reference that saw
every distinct row once has answered for all of them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from compiler.verify.inputs.points import Point
from relaxd.contract.dims.dims import Dim
from relaxd.contract.dims.names import quote_name
from relaxd.contract.dims.tensors import TensorSpec

Arrays = Mapping[str, np.ndarray[Any, Any]]

DISTINCT_ROWS = (5, 7, 11, 13)
"""Of which the first is taken that the dim admits. They are primes: in no tile of a kernel do rows
that are taken for each other lie so far apart.
"""
FEWEST_ROWS = 16
"""Batches of fewer rows have none that repeat."""


@dataclass(frozen=True)
class Repeat:
    """Rows of a batch of `count`, of which the first `distinct` repeat; inputs: those by name that
    have the batch for their first axis.
    """

    distinct: int
    count: int
    inputs: tuple[str, ...]

    def fill(self, inputs: Arrays) -> dict[str, np.ndarray[Any, Any]]:
        """The inputs with their first rows in place of all others."""
        return {name: self._extend(a) if name in self.inputs else a for name, a in inputs.items()}

    def shorten(self, inputs: Arrays) -> dict[str, np.ndarray[Any, Any]]:
        """The inputs of a batch of the distinct rows."""
        return {
            name: array[: self.distinct] if name in self.inputs else array
            for name, array in inputs.items()
        }

    def extend(self, outputs: Arrays) -> dict[str, np.ndarray[Any, Any]]:
        """The outputs of the whole batch by those of `shorten`'s, whatever has as many rows."""
        return {
            name: self._extend(array) if array.shape[:1] == (self.distinct,) else array
            for name, array in outputs.items()
        }

    def _extend(self, rows: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        return rows[np.arange(self.count) % self.distinct]


def find_batch(
    inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec], dims: Sequence[Dim]
) -> Dim | None:
    """The dim that every output and some input have for their first axis and no tensor has in
    another: rows may then be computed each by itself, which the outputs will tell.
    """
    for dim in dims:
        carrying = [spec for spec in (*inputs, *outputs) if _carries(spec, dim.name)]
        is_first = all(_is_first(spec, dim.name) for spec in carrying)
        if is_first and outputs and all(spec in carrying for spec in outputs):
            return dim if any(spec in carrying for spec in inputs) else None
    return None


def repeat_at(point: Point, inputs: Sequence[TensorSpec], batch: Dim | None) -> Repeat | None:
    """How rows repeat at the point; None where they do not."""
    if batch is None or (count := point.dims.get(batch.name, 0)) < FEWEST_ROWS:
        return None
    distinct = next((rows for rows in DISTINCT_ROWS if batch.admits(rows)), None)
    if distinct is None:
        return None
    names = tuple(spec.name for spec in inputs if _carries(spec, batch.name))
    return Repeat(distinct, count, names)


def _carries(spec: TensorSpec, name: str) -> bool:
    return any(name in axis.dims for axis in spec.shape)


def _is_first(spec: TensorSpec, name: str) -> bool:
    first, *others = spec.shape
    return first.text == quote_name(name) and not any(name in axis.dims for axis in others)

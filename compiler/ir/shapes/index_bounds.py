"""Which values of inputs are legal: of indices, lengths, coordinates and boxes, as numbers and
expressions of the inputs' dims.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np

from relaxd.contract.dims.axes import Axis

End: TypeAlias = int | Axis
Array: TypeAlias = np.ndarray[Any, Any]

_OPEN = (np.iinfo(np.int64).min, np.iinfo(np.int64).max)


@dataclass(frozen=True)
class Limit:
    """The demand of one use on the values of an input: to lie from `low` to `high`, both included.

    coordinate: the position on the last axis whose values are meant, None for all of them.
    distinct: the axis along which no value may occur twice; of coordinates, which belong together,
    no tuple may. from_end: negative values count from the end, and are legal as far as the positive
    ones are. total: what the values add up to; elements: of the shape that they are. length: how
    many there may be along the last axis. scale: of both ends, where values are floats; integral:
    floats are to be whole numbers. usual: other values are legal too, and these are drawn
    where no other use limits them. nonzero: 0 is illegal.

    An end in terms of a dim that no input carries counts as 0.
    """

    low: End
    high: End
    coordinate: int | None = None
    distinct: int | None = None
    from_end: bool = False
    total: End | None = None
    elements: End | None = None
    length: End | None = None
    scale: float = 1.0
    integral: bool = True
    usual: bool = False
    nonzero: bool = False

    @property
    def signed(self) -> bool:
        """True where negative values are usual."""
        return self.usual and (not isinstance(self.low, int) or self.low < 0)

    def evaluate(self, dims: Mapping[str, int]) -> tuple[int, int]:
        """Both ends at these dims, before `scale`."""
        return evaluate_end(self.low, dims), evaluate_end(self.high, dims)


Limits: TypeAlias = Mapping[str, Sequence[Limit]]
"""By the name of an input, the demands of its uses, all of which hold."""


def collect(uses: Iterable[tuple[str | None, Limit]], inputs: Collection[str]) -> Limits:
    """The limits of each input, each once; of values that no name leads to or that are no inputs,
    none.
    """
    result: dict[str, dict[Limit, None]] = {}
    for source, limit in uses:
        if source in inputs and source is not None:
            result.setdefault(source, {})[limit] = None
    return {name: tuple(limits) for name, limits in result.items()}


USUAL = 9
"""The greatest magnitude of integers that are drawn where any are legal."""


def demands(limits: Sequence[Limit]) -> list[Limit]:
    """The limits outside of which a value is illegal."""
    return [limit for limit in limits if not limit.usual]


def without_coordinates(limit: Limit) -> Limit:
    """The limit for values whose positions a graph has changed: it holds for all of them."""
    return replace(limit, coordinate=None, distinct=None, total=None, elements=None, length=None)


def ends_at(
    limits: Sequence[Limit], dims: Mapping[str, int], shape: Sequence[int]
) -> tuple[Array, Array]:
    """The least and the greatest legal value at these dims, before scaling; they broadcast to the
    shape. Empty ranges keep low > high; a coordinate without a limit is small.
    """
    columns = shape[-1] if shape and any(limit.coordinate is not None for limit in limits) else 1
    low, high = np.full(columns, _OPEN[0]), np.full(columns, _OPEN[1])
    for limit in limits:
        least, most = limit.evaluate(dims)
        first = limit.coordinate
        part = slice(None) if first is None else slice(first, first + 1)
        low[part] = np.maximum(low[part], least)
        high[part] = np.minimum(high[part], most)
    return np.where(low == _OPEN[0], 0, low), np.where(high == _OPEN[1], USUAL, high)


def evaluate_end(end: End, dims: Mapping[str, int]) -> int:
    """The end at these dims."""
    if isinstance(end, int):
        return end
    return end.evaluate(dims) if end.dims <= dims.keys() else 0

"""Positions on an axis that a program may address: a type of their own, so that no operator reads
or writes at a number that nothing has checked.

`ops.indexing.check` makes them of a model's values. Programs take `Indices` and turn what they read
of them into an address by `address`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from tvm import tirx

from compiler.ir.graph.values import Known, Value
from compiler.ir.shapes import extents as ex
from compiler.ir.shapes.extents import Extent


@dataclass(frozen=True, eq=False)
class Indices:
    """Integers in [-extent, extent), negative ones counted from the axis's end.

    value: of any integer dtype and shape; extent: elements of the axis.
    """

    value: Value
    extent: Extent

    @classmethod
    def constant(cls, positions: Any, extent: Extent) -> Indices:
        """Positions that the importer chose itself, inside of the axis."""
        return cls(Known.of(np.asarray(positions, np.int64)), extent)

    @classmethod
    def from_program(cls, value: Value, extent: Extent) -> Indices:
        """Positions that a program of ours computed, which can be no others than the axis has: a
        permutation, a position that it counted, the iteration of a loop over the axis.
        """
        return cls(value, extent)

    @property
    def shape(self) -> tuple[Extent, ...]:
        """The value's."""
        return self.value.shape

    def address(self, element: Any) -> Any:
        """An element of the value, as a program reads it, as the int64 address on the axis."""
        return wrap(element, self.extent)


def wrap(index: Any, extent: Extent) -> Any:
    """An index expression as int64, negative ones counted from the end."""
    index = index.astype("int64")
    return tirx.Select(index < ex.prim(0), index + ex.prim(extent), index)


def position_near(position: Any, extent: Extent) -> Any:
    """The int64 address of the element at a float position, the nearest end for one beyond them and
    the first for NaN; the axis has an element.

    What float32 holds beyond int64, and NaN, has no integer: the limits come before the cast.
    """
    dtype = position.ty.dtype
    zero = tirx.const(0, dtype)
    last = ex.prim(ex.sub(extent, 1))
    below = tirx.Select(position < last.astype(dtype), position, last.astype(dtype))
    limited = tirx.Select(position > zero, below, zero).astype("int64")
    # The last position may be rounded up as a float.
    return tirx.max(tirx.min(limited, last), ex.prim(0))

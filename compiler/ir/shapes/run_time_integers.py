"""How a library reads integers that only run time knows: what each kind of use needs of them, and
what every run checks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum
from typing import Any

import numpy as np
from tvm import te, tirx
from tvm.ir import Expr as PrimExpr

from compiler.ir.shapes import extents as ex
from compiler.ir.shapes.extents import Scalar
from compiler.ir.shapes.facts import UNBOUNDED, Facts

INTEGER_LIMIT = 1 << 61
"""The greatest magnitude of an integer that is computed with: three add up to an int64."""


def is_extent(value: Scalar) -> Any:
    """The condition that a number can be the extent of an axis."""
    return ex.both(ex.greater_equal(value, 0), ex.less_equal(value, UNBOUNDED))


class Reading(Enum):
    """Uses of the integers of a run-time tensor.

    EXTENT: of an axis, checked. COUNT: of an axis too, counted by a program of the import, which
    needs no check. INTEGER: any number, checked to be within INTEGER_LIMIT. POSITION: any number,
    of which what lies beyond every axis is cut off. FLAG: a bool.
    """

    EXTENT = "extent"
    COUNT = "count"
    INTEGER = "integer"
    POSITION = "position"
    FLAG = "flag"

    @property
    def signed(self) -> bool:
        """True where they may be negative."""
        return self in (Reading.INTEGER, Reading.POSITION)

    @property
    def checked(self) -> bool:
        """True where a run checks them."""
        return self in (Reading.EXTENT, Reading.INTEGER)

    @property
    def served_by(self) -> tuple[Reading, ...]:
        """The uses for which an earlier reading of a tensor gave what this one needs."""
        others = (Reading.INTEGER, self) if self.signed else ()
        return (Reading.EXTENT, Reading.COUNT, *others)

    def message(self, what: str) -> str:
        """The error of a run where the check fails."""
        return f"{what} is not in [{'-2^61, 2^61' if self is Reading.INTEGER else '0, 2^40'}]"

    def symbols(self, facts: Facts, names: Sequence[str]) -> tuple[list[PrimExpr], list[tirx.Var]]:
        """An expression for each integer, and the variables that `writer` gives values, in its
        order.
        """
        if self.signed:
            most = UNBOUNDED if self is Reading.POSITION else INTEGER_LIMIT
            pairs = [facts.integer(name, most) for name in names]
            flat = [part for pair in pairs for part in pair]
            return [above - below for above, below in pairs], flat
        variables = [facts.fresh(name, 0, 1 if self is Reading.FLAG else None) for name in names]
        if self is Reading.FLAG:
            return [tirx.NE(variable, ex.prim(0)) for variable in variables], variables
        return list(variables), variables

    def writer(self, x: te.Tensor, number: int | None) -> Callable[[Any], Any]:
        """The elements of a vector with the values of the variables and, behind them, the number of
        the check, or 0 where it fails.
        """
        count = int(np.prod([int(extent) for extent in x.shape]))
        width = 2 if self.signed else 1
        least, most = self._range()

        def item(position: Any) -> Any:
            value = x(*_unravel(position, x.shape)).astype("int64")
            return tirx.max(tirx.min(value, most), least) if self is Reading.POSITION else value

        def entry(i: Any) -> Any:
            last = ex.prim(count - 1)
            value = item(tirx.min(tirx.floordiv(i, ex.prim(width)), last))
            if self.signed:
                below = tirx.EQ(tirx.floormod(i, ex.prim(2)), ex.prim(1))
                value = tirx.max(tirx.Select(below, ex.prim(0) - value, value), ex.prim(0))
            if number is None:
                return value
            passes: Any = True
            for position in range(count):
                element = item(ex.prim(position))
                passes = ex.both(passes, ex.both(element >= least, element <= most))
            verdict = tirx.Select(passes, ex.prim(number), ex.prim(0))
            return tirx.Select(i < ex.prim(count * width), value, verdict)

        return entry

    def _range(self) -> tuple[PrimExpr, PrimExpr]:
        if self is Reading.INTEGER:
            return ex.prim(-INTEGER_LIMIT), ex.prim(INTEGER_LIMIT)
        return ex.prim(-UNBOUNDED if self is Reading.POSITION else 0), ex.prim(UNBOUNDED)


def _unravel(position: Any, shape: Sequence[Any]) -> list[Any]:
    """The index of an element by its place in row-major order."""
    index: list[Any] = []
    for extent in reversed([int(extent) for extent in shape]):
        index.append(tirx.floormod(position, ex.prim(extent)))
        position = tirx.floordiv(position, ex.prim(extent))
    return index[::-1]

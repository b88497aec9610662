"""The scales of keys and values that are rows of bytes, for `decode`.

A score is multiplied by its key's scale, and a power by its value's, so that the loops over the
numbers of rows are those of rows without scales.
"""

from typing import Any

from tvm import tirx

from compiler.passes.cpu.families.attention.match import Attention
from compiler.targets.vector_unit import VectorUnit
from compiler.tir.building import let, serial, store, vectorize
from compiler.tir.exprs import Expr, Table, const, load, substitute


def store_scales(
    attention: Attention, scale: Expr, place: Table, first: Expr, count: Expr | int, scales: Any
) -> None:
    """scales[i] = the scale of the key or value in column `first` + i, for `count` of them; beyond
    the last column it is that one's.
    """
    column = attention.column
    with serial(count, "row") as i:
        row = let("row", tirx.min(first + i, column.extent - 1))
        store(scales, substitute(scale, {**place, column.var: row}), i)


def store_value_scales(attention: Attention, unit: VectorUnit, place: Table, scales: Any) -> None:
    """The scales of all values, in whole vectors."""
    lanes = unit.lanes(32)
    count = tirx.ceildiv(attention.column.extent, lanes) * lanes
    assert attention.value_scale is not None
    store_scales(attention, attention.value_scale, place, const(0), count, scales)


def scale_powers(
    attention: Attention, unit: VectorUnit, powers: Any, begin: Expr, scales: Any, first: Expr
) -> None:
    """Multiply the powers of a row by the values' scales from `first` on, in whole vectors."""
    lanes = unit.lanes(32)
    with serial(tirx.ceildiv(attention.column.extent, lanes), "strip") as strip:
        with vectorize(lanes) as lane:
            place, scale = begin + strip * lanes + lane, first + strip * lanes + lane
            store(powers, load(powers, [place]) * load(scales, [scale]), place)

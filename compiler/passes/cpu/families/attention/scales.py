"""The scales of int8 keys and values, for `decode`.

A score is multiplied by its key's scale, and a power by its value's, so that the loops over
elements are the same as without scales.
"""

from typing import Any

from tvm import tirx

from compiler.passes.cpu.families.attention.match import Attention
from compiler.targets.vector_unit import VectorUnit
from compiler.tir.building import let, serial, store, vectorize
from compiler.tir.exprs import Expr, Table, const, load, substitute


def store_scales(
    attention: Attention, scale: Expr, position: Table, first: Expr, count: Expr | int, scales: Any
) -> None:
    """Emit scales[i] = the scale of the key or value in column `first` + i, for `count` of them;
    columns past the last one have its scale.
    """
    column = attention.column
    with serial(count, "row") as i:
        row = let("row", tirx.min(first + i, column.extent - 1))
        store(scales, substitute(scale, {**position, column.var: row}), i)


def store_value_scales(
    attention: Attention, unit: VectorUnit, position: Table, scales: Any
) -> None:
    """Emit the scales of all values, in whole vectors."""
    lanes = unit.lanes(32)
    count = tirx.ceildiv(attention.column.extent, lanes) * lanes
    assert attention.value_scale is not None
    store_scales(attention, attention.value_scale, position, const(0), count, scales)


def scale_powers(
    attention: Attention, unit: VectorUnit, powers: Any, begin: Expr, scales: Any, first: Expr
) -> None:
    """Emit powers of a row times the values' scales from `first` on, in whole vectors."""
    lanes = unit.lanes(32)
    with serial(tirx.ceildiv(attention.column.extent, lanes), "strip") as strip:
        with vectorize(lanes) as lane:
            index, scale = begin + strip * lanes + lane, first + strip * lanes + lane
            store(powers, load(powers, [index]) * load(scales, [scale]), index)

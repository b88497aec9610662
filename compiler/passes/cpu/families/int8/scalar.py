"""The register tile of an instruction that adds up a group of products in one general register, as
ARM's micro-controllers have them: SMLAD, and VMLADAVA of Helium.

Half of the general registers hold accumulators: two rows by two columns. Each step of the depth
reads a group of both rows and of both columns, and multiplies each row by each column.
"""

from typing import Any

from tvm import tirx
from tvm.ir.prim import expr as prim

from compiler.passes.cpu.families.int8.layout import Layout
from compiler.passes.cpu.families.int8.rows import Rows
from compiler.tir.building import alloc, steps, store
from compiler.tir.exprs import Expr, const, load

COLUMNS = 2
"""Columns of a tile: more accumulators would leave no registers for what is multiplied."""


def emit_scalar_tile(
    layout: Layout, left: Rows, rows: tuple[Expr, int], panel: Expr, together: int
) -> Any:
    """Emit the rows, (first, count), by one panel over all groups; gives the accumulators."""
    acc = alloc([rows[1] * layout.width], "int32", "acc")
    for place in range(rows[1] * layout.width):
        store(acc, 0, place)
    for first in range(0, layout.width, COLUMNS):
        columns = range(first, first + COLUMNS)
        for k in steps(layout.length, together):
            weights = [_weights(layout, panel, k, column) for column in columns]
            for i in range(rows[1]):
                given = _given(layout, left.groups, (rows[0] + i) * layout.length + k)
                for column, weight in zip(columns, weights, strict=True):
                    place = i * layout.width + column
                    store(acc, _added(layout, load(acc, [place]), given, weight), place)
    return acc


def _given(layout: Layout, groups: Any, group: Expr) -> list[Expr]:
    """The left operands of a group: one a word, or one vector."""
    start = group * layout.words
    if layout.words == COLUMNS:
        return [load(groups, [start + word]) for word in range(layout.words)]
    words = load(groups, [prim.Ramp(start, const(1), layout.words)])
    return [tirx.reinterpret(f"int16x{layout.group}", words)]


def _weights(layout: Layout, panel: Expr, k: Expr, column: int) -> list[Expr]:
    """The right operands of a group of one column, widened from bytes."""
    place = ((panel * layout.stored + k) * layout.width + column) * layout.group
    packed = load(layout.conv.weights, [prim.Ramp(place, const(1), layout.group)])
    if layout.words != COLUMNS:
        return [packed.astype(f"int16x{layout.group}")]
    word = tirx.reinterpret("int32", packed)
    rotated = tirx.call_llvm_pure_intrin("int32", "llvm.fshr", word, word, tirx.const(8, "int32"))
    return [
        tirx.call_llvm_pure_intrin("int32", "llvm.arm.sxtb16", every) for every in (word, rotated)
    ]


def _added(layout: Layout, total: Expr, given: list[Expr], weights: list[Expr]) -> Expr:
    """The total and every product of the group."""
    name = layout.product.intrinsic
    for left, right in zip(given, weights, strict=True):
        if layout.words == COLUMNS:
            total = tirx.call_llvm_pure_intrin("int32", name, left, right, total)
        else:
            flag = tirx.const(0, "int32")
            total = tirx.call_llvm_pure_intrin("int32", name, flag, flag, flag, total, left, right)
    return total

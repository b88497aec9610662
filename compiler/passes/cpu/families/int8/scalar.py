"""The register tile of VMLADAVA of Helium, which accumulates a group in one general register.

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
"""Columns of a tile: more accumulators would leave no registers for operands."""


def emit_scalar_tile(
    layout: Layout, left: Rows, rows: tuple[Expr, int], panel: Expr, unroll: int
) -> Any:
    """Emit the rows, (first, count), by one panel over all groups; return the accumulators."""
    acc = alloc([rows[1] * layout.width], "int32", "acc")
    for index in range(rows[1] * layout.width):
        store(acc, 0, index)
    for first in range(0, layout.width, COLUMNS):
        columns = range(first, first + COLUMNS)
        for k in steps(layout.length, unroll):
            weights = [_load_weights(layout, panel, k, column) for column in columns]
            for i in range(rows[1]):
                left_group = _load_left(layout, left.groups, (rows[0] + i) * layout.length + k)
                for column, weight in zip(columns, weights, strict=True):
                    index = i * layout.width + column
                    store(acc, _multiply_add(layout, load(acc, [index]), left_group, weight), index)
    return acc


def _load_left(layout: Layout, groups: Any, group: Expr) -> Expr:
    """The left operand of a group, a vector."""
    words = load(groups, [prim.Ramp(group * layout.words, const(1), layout.words)])
    return tirx.reinterpret(f"int16x{layout.group}", words)


def _load_weights(layout: Layout, panel: Expr, k: Expr, column: int) -> Expr:
    """The right operand of one column's group, widened from bytes."""
    begin = ((panel * layout.stored + k) * layout.width + column) * layout.group
    packed = load(layout.conv.weights, [prim.Ramp(begin, const(1), layout.group)])
    return packed.astype(f"int16x{layout.group}")


def _multiply_add(layout: Layout, total: Expr, left_group: Expr, weights: Expr) -> Expr:
    """The total plus the dot product of a group."""
    name, flag = layout.instruction.intrinsic, tirx.const(0, "int32")
    return tirx.call_llvm_pure_intrin("int32", name, flag, flag, flag, total, left_group, weights)

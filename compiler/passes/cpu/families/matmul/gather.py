"""Copying what a block of rows needs of the left side into scratch memory, contiguous along the
depth.
"""

from typing import Any

from tvm import tirx

from compiler.passes.cpu.families.matmul.match import Contraction
from compiler.passes.cpu.shared.loop_nest import vectorizable
from compiler.passes.cpu.shared.sharing import place_of
from compiler.targets.vector_unit import VectorUnit
from compiler.tir.exprs import Expr, Table, as_int, const, is_choice, substitute, uses
from compiler.tir.loops import Stmt, bind_all, hidden, serial, store, strips, when
from compiler.tir.stages import Axis


def inner_run(contraction: Contraction) -> int:
    """The extent of the innermost axis of the depth: passes over the depth start at multiples of
    it.
    """
    return as_int(contraction.reduce[-1].extent) or 1


def gather_rows(
    contraction: Contraction,
    unit: VectorUnit,
    left: Any,
    kc: int,
    first: Expr,
    count: Expr,
    start: Expr,
    length: Expr,
) -> Stmt:
    """left[row * kc + k] = the left side at row `first + row` and depth `start + k`, for `count`
    rows and `length` of the depth.
    """
    rows, run = contraction.rows, inner_run(contraction)
    outer, inner = contraction.reduce[:-1], contraction.reduce[-1]

    def position(index: Expr, row: Expr, at: Table) -> Stmt:
        where = place_of(outer, tirx.floordiv(start, const(run)) + index)
        return _copy(
            contraction.left,
            inner,
            unit,
            left,
            row * const(kc) + index * const(run),
            {**at, **where},
        )

    def one_row(row: Expr) -> Stmt:
        positions = hidden(tirx.floordiv(length, const(run)), count)
        return bind_all(
            place_of(rows, first + row),
            lambda at: serial(positions, lambda q: position(q, row, at), "position"),
        )

    return serial(count, one_row, "row")


def _copy(value: Expr, inner: Axis, unit: VectorUnit, left: Any, base: Expr, at: Table) -> Stmt:
    lanes = unit.lanes(32) if vectorizable(value, inner.var) or _guarded(value, inner) else 1

    def run(source: Expr) -> Stmt:
        return strips(
            inner.extent,
            lanes,
            lambda j: store(left, substitute(source, {**at, inner.var: j}), base + j),
            inner.var.name,
        )

    if _guarded(value, inner):
        condition, inside, outside = value.args
        return when(substitute(condition, at), run(inside), run(outside))
    return run(value)


def _guarded(value: Expr, inner: Axis) -> bool:
    """Whether `value` is a load or a constant by a condition that does not change along the run:
    padding.
    """
    if not is_choice(value):
        return False
    return not uses(value.args[0], inner.var) and all(
        vectorizable(side, inner.var) for side in value.args[1:]
    )

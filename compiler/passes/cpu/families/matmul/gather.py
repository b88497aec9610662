"""Gather what a block of rows needs of the left side into scratch memory, contiguous in the depth.

The left side of a convolution is its window: a run of channels for each place of the window, zeros
where the window reaches past the image. The copy costs one pass over each row and is read once for
every panel, so the innermost loops see neither strides nor conditions.
"""

from typing import Any

from compiler.passes.cpu.families.matmul.match import Contraction
from compiler.passes.cpu.shared.loop_nest import vectorizable
from compiler.passes.cpu.shared.sharing import place_of
from compiler.targets.vector_unit import VectorUnit
from compiler.tir.building import let_all, otherwise, serial, store, strips, when
from compiler.tir.exprs import Expr, Table, is_choice, substitute, uses
from compiler.tir.loops import hidden
from compiler.tir.stages import Axis


def gather_rows(
    contraction: Contraction,
    unit: VectorUnit,
    left: Any,
    kc: int,
    rows: tuple[Expr, Expr],
    depths: tuple[Expr, Expr],
) -> None:
    """left[i * kc + k] = the left side at row `first + i` and depth `start + k`.

    rows: (first, count); depths: (start, length), both multiples of the inner run.
    """
    first, count = rows
    start, length = depths
    run, outer = contraction.inner_run, contraction.reduce[:-1]
    with serial(count, "row") as row:
        at = let_all(place_of(contraction.rows, first + row))
        # Without `hidden` LLVM unrolls this loop where the length is known, which takes it seconds.
        with serial(hidden(length // run, count), "position") as position:
            # The run may lie anywhere in memory; only within it are channels contiguous.
            window = place_of(outer, start // run + position)
            _copy_run(contraction, unit, left, row * kc + position * run, {**at, **window})


def _copy_run(
    contraction: Contraction, unit: VectorUnit, left: Any, begin: Expr, at: Table
) -> None:
    """Copy one run of the innermost axis, from its place `at`, to left[begin]."""
    value, inner = contraction.left, contraction.reduce[-1]
    if _guarded(value, inner):
        # One test for the whole run: inside the image copy it, outside write zeros.
        condition, inside, outside = value.args
        with when(substitute(condition, at)):
            _copy(inside, inner, unit.lanes(32), left, begin, at)
        with otherwise():
            _copy(outside, inner, unit.lanes(32), left, begin, at)
    else:
        lanes = unit.lanes(32) if vectorizable(value, inner.var) else 1
        _copy(value, inner, lanes, left, begin, at)


def _copy(value: Expr, inner: Axis, lanes: int, left: Any, begin: Expr, at: Table) -> None:
    for j in strips(inner.extent, lanes, inner.var.name):
        store(left, substitute(value, {**at, inner.var: j}), begin + j)


def _guarded(value: Expr, inner: Axis) -> bool:
    """Whether `value` is padded: one of two values that can be copied in vectors, by a condition
    that does not change along the run.
    """
    if not is_choice(value) or uses(value.args[0], inner.var):
        return False
    return all(vectorizable(side, inner.var) for side in value.args[1:])

"""Gather what a block of rows needs of the left side into scratch memory, contiguous in the depth.

The left side of a convolution is its window: a run of channels for each place of the window, zeros
where the window reaches past the image. The copy costs one pass over each row and is read once for
every panel, so the innermost loops see neither strides nor conditions.
"""

from typing import Any

from compiler.passes.cpu.families.matmul.match import Matmul
from compiler.passes.cpu.shared.bfloats import store_bfloat16
from compiler.passes.cpu.shared.sharing import position_of
from compiler.passes.cpu.shared.vectorizable import is_vectorizable
from compiler.targets.vector_unit import VectorUnit
from compiler.tir.building import blocks, let_all, otherwise, serial, store, strips, when
from compiler.tir.exprs import Expr, Table, is_choice, substitute, uses
from compiler.tir.loops import hide_count
from compiler.tir.stages import Axis


def gather_rows(
    matmul: Matmul,
    unit: VectorUnit,
    left: Any,
    rows: tuple[Expr, Expr],
    depths: tuple[Expr, Expr],
) -> None:
    """left[i * kc + k] = the left side at row `first + i` and step `start + k` of the depth; of
    pairs, two numbers for each step.

    rows: (first, count); depths: (start, length), both multiples of the inner run.
    """
    first, count = rows
    start, length = depths
    contraction, run, kc = matmul.contraction, matmul.run, matmul.tiling.kc
    each = 2 if matmul.paired else 1
    with serial(count, "row") as row:
        at = let_all(position_of(contraction.rows, first + row))
        # Without `hidden` LLVM unrolls this loop where the length is known, which takes it seconds.
        with serial(hide_count(length // run, count), "position") as position:
            # The run may lie anywhere in memory; only within it are channels contiguous.
            window = position_of(contraction.reduce[:-1], start // run + position)
            begin = (row * kc + position * run) * each
            _copy_run(matmul, unit, left, begin, {**at, **window})


def _copy_run(matmul: Matmul, unit: VectorUnit, left: Any, begin: Expr, at: Table) -> None:
    """Copy one run of the innermost axis, from its place `at`, to left[begin]."""
    value, inner = matmul.contraction.left, matmul.contraction.reduce[-1]
    if _guarded(value, inner):
        # One test for the whole run: inside the image copy it, outside write zeros.
        condition, inside, outside = value.args
        with when(substitute(condition, at)):
            _copy(matmul, inside, unit, left, begin, at)
        with otherwise():
            _copy(matmul, outside, unit, left, begin, at)
    else:
        _copy(matmul, value, unit, left, begin, at)


def _copy(matmul: Matmul, value: Expr, unit: VectorUnit, left: Any, begin: Expr, at: Table) -> None:
    inner = matmul.contraction.reduce[-1]
    lanes = unit.lanes(32) if is_vectorizable(value, inner.var) else 1
    if not matmul.paired:
        for j in strips(inner.extent, lanes, inner.var.name):
            store(left, substitute(value, {**at, inner.var: j}), begin + j)
        return
    for start, width in blocks(inner.extent, lanes, inner.var.name):

        def here(lane: Expr, start: Expr = start) -> Expr:
            return substitute(value, {**at, inner.var: start + lane})

        store_bfloat16(left, begin + start, width, unit, here)
    extent = matmul.contraction.inner_run
    if extent % 2:
        # The second of the last pair meets a zero of the weights, but might be a NaN.
        store(left, 0, begin + extent)


def _guarded(value: Expr, inner: Axis) -> bool:
    """Whether `value` is padded: one of two values that can be copied in vectors, by a condition
    that does not change along the run.
    """
    if not is_choice(value) or uses(value.args[0], inner.var):
        return False
    return all(is_vectorizable(side, inner.var) for side in value.args[1:])

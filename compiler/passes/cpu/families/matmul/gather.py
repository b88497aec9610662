"""Gathering of a block's rows of the left side into scratch memory, contiguous along the depth.

The left side of a convolution is its window: a run of channels for each position of the window,
zeros where it reaches past the image. The copy takes one pass over each row and is read once for
every panel, so that the innermost loops have neither strides nor conditions.
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
    """Emit left[i * kc + k] = the left side at row `first + i` and step `start + k` of the depth;
    a step is two elements of bfloat16.

    rows: (first, count); depths: (start, length), both multiples of the inner run.
    """
    first, count = rows
    start, length = depths
    contraction, run, kc = matmul.contraction, matmul.run, matmul.tiling.kc
    each = 2 if matmul.is_bfloat16 else 1
    with serial(count, "row") as row:
        position = let_all(position_of(contraction.rows, first + row))
        # Without `hidden` LLVM unrolls this loop where the length is known, which takes it seconds.
        with serial(hide_count(length // run, count), "position") as index:
            # Runs may be anywhere in memory; channels are contiguous within them alone.
            window = position_of(contraction.reduce[:-1], start // run + index)
            begin = (row * kc + index * run) * each
            _copy_run(matmul, unit, left, begin, {**position, **window})


def _copy_run(matmul: Matmul, unit: VectorUnit, left: Any, begin: Expr, position: Table) -> None:
    """Emit the copy of one run of the innermost axis, at `position` of the others, to
    left[begin].
    """
    value, inner = matmul.contraction.left, matmul.contraction.reduce[-1]
    if _is_padded(value, inner):
        # One condition for the whole run: it is copied inside the image, and zeros outside.
        condition, inside, outside = value.args
        with when(substitute(condition, position)):
            _copy_value(matmul, inside, unit, left, begin, position)
        with otherwise():
            _copy_value(matmul, outside, unit, left, begin, position)
    else:
        _copy_value(matmul, value, unit, left, begin, position)


def _copy_value(
    matmul: Matmul, value: Expr, unit: VectorUnit, left: Any, begin: Expr, position: Table
) -> None:
    inner = matmul.contraction.reduce[-1]
    lanes = unit.lanes(32) if is_vectorizable(value, inner.var) else 1
    if not matmul.is_bfloat16:
        for j in strips(inner.extent, lanes, inner.var.name):
            store(left, substitute(value, {**position, inner.var: j}), begin + j)
        return
    for start, width in blocks(inner.extent, lanes, inner.var.name):

        def element(lane: Expr, start: Expr = start) -> Expr:
            return substitute(value, {**position, inner.var: start + lane})

        store_bfloat16(left, begin + start, width, unit, element)
    extent = matmul.contraction.inner_run
    if extent % 2:
        # The second element of the last pair is multiplied by a zero, but might be NaN.
        store(left, 0, begin + extent)


def _is_padded(value: Expr, inner: Axis) -> bool:
    """True if `value` is one of two values that can be copied in vectors, by a condition that does
    not change along the run.
    """
    if not is_choice(value) or uses(value.args[0], inner.var):
        return False
    return all(is_vectorizable(side, inner.var) for side in value.args[1:])

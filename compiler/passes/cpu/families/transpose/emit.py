"""The kernel of programs that write along one axis and read along another.

Loop order: strips of WRITTEN positions along the written axis over the threads; in a strip, blocks
of READ positions along the read axis; in a block, squares. A square is read line by line,
transposed in registers (`shared/square.py`) and written row by row. The last square along either
axis ends with the axis or the strip and repeats results of the one before it. Positions of an axis
that is shorter than a square are computed one by one.

WRITTEN and READ elements are full cache lines of 64 bytes for every dtype from 4 bytes on, so that
all of a line is used while it is in the first-level cache.
"""

import tvm
import tvm_ffi
from tvm import tirx
from tvm.ir.prim import expr as prim

from compiler.passes.cpu.families.transpose import plan
from compiler.passes.cpu.families.transpose.match import Permute
from compiler.passes.cpu.shared.loop_nest import store_result
from compiler.passes.cpu.shared.sharing import bind_extents, is_parallel_profitable, share_positions
from compiler.passes.cpu.shared.square import transpose_square
from compiler.targets.vector_unit import VectorUnit
from compiler.tir.building import (
    emit,
    let,
    otherwise,
    prefetch,
    serial,
    statements,
    vectorize,
    when,
)
from compiler.tir.exprs import (
    Expr,
    Table,
    as_int,
    bits_of,
    const,
    dtype_of,
    either,
    load,
    rewrite,
    substitute,
)
from compiler.tir.loops import Stmt


def emit_permute(permute: Permute, unit: VectorUnit) -> Stmt:
    """The body of a function that runs the program."""
    read, written, stage = permute.read, permute.written, permute.stage
    size = _size(permute, unit)
    outer = [axis for axis in stage.axes if axis is not read and axis is not written]
    # Along the written axis, so that threads hardly ever write to the same cache line. A rest that
    # fills no square belongs to the strip before it.
    strips_of_row = tirx.max(tirx.ceildiv(written.extent - (size - 1), plan.WRITTEN), 1)
    with statements() as body:
        for stmt in permute.prelude:
            emit(stmt)
        for position, strip in share_positions(
            bind_extents(outer), strips_of_row, is_parallel_profitable(stage)
        ):
            start = let("start", strip * plan.WRITTEN)
            rest = written.extent - start
            count = let("count", either(strip + 1 < strips_of_row, const(plan.WRITTEN), rest))
            with when(tirx.all(read.extent >= size, written.extent >= size)):
                _emit_squares(permute, size, position, (start, count))
            with otherwise():
                _emit_singly(permute, position, (const(0), start), (read.extent, count))
    return body.stmt


def _size(permute: Permute, unit: VectorUnit) -> int:
    """The side of a square: the greatest power of two up to READ that fits both axes, and vectors
    of both dtypes.
    """
    dtypes = (dtype_of(permute.stage.value), dtype_of(permute.far))
    extents = (as_int(axis.extent) for axis in (permute.read, permute.written))
    most = min(plan.READ, unit.lanes(max(map(bits_of, dtypes))), *filter(None, extents))
    return 1 << (most.bit_length() - 1)


def _emit_squares(permute: Permute, size: int, position: Table, strip: tuple[Expr, Expr]) -> None:
    """Emit a strip, (first, count), along the written axis."""
    height, (start, count) = permute.read.extent, strip
    with serial(tirx.ceildiv(height, plan.READ), "block") as block:
        first = let("first", block * plan.READ)
        rows = tirx.ceildiv(tirx.min(plan.READ, height - first), size)
        with serial(tirx.ceildiv(count, size), "square") as square, serial(rows, "row") as row:
            i = let("i", tirx.min(first + row * size, height - size))
            j = let("j", start + tirx.min(square * size, count - size))
            _emit_square(permute, size, position, (i, j))


def _emit_square(permute: Permute, size: int, position: Table, first: tuple[Expr, Expr]) -> None:
    """Emit `size` by `size` elements, which are read before any is written."""
    far = permute.far

    def part_of(line: int, start: int, count: int) -> Expr:
        here = _position(permute, position, first[0] + start, first[1] + line)
        offset = substitute(far.indices[0], here)
        return load(far.source, [prim.Ramp(offset, const(1), count) if count > 1 else offset])

    _prefetch_square(permute, size, position, first)
    rows = transpose_square(dtype_of(far), size, part_of)
    for i, row in enumerate(rows):
        with vectorize(size) as j:
            here = _position(permute, position, first[0] + i, first[1] + j)
            _emit_element(permute, here, load(row.source, [j]))


def _prefetch_square(
    permute: Permute, size: int, position: Table, first: tuple[Expr, Expr]
) -> None:
    """Emit prefetches of a square's lines in the next block: they are more streams than hardware
    prefetches follow.
    """
    height = as_int(permute.read.extent)
    if height is not None and height <= plan.READ:
        return
    for line in range(size):
        ahead = _position(permute, position, first[0] + plan.READ, first[1] + line)
        prefetch(permute.far.source, substitute(permute.far.indices[0], ahead), level=1)


def _emit_singly(
    permute: Permute, position: Table, first: tuple[Expr, Expr], count: tuple[Expr | int, Expr]
) -> None:
    """Emit `count` positions along either axis one by one."""
    with serial(count[0], "i") as i, serial(count[1], "j") as j:
        _emit_element(permute, _position(permute, position, first[0] + i, first[1] + j), None)


def _position(permute: Permute, position: Table, i: Expr, j: Expr) -> Table:
    return {**position, permute.read.var: i, permute.written.var: j}


def _emit_element(permute: Permute, here: Table, far: Expr | None) -> None:
    """Emit one element of the result; far: replaces the load with gaps, unless it is None."""

    def replace_node(node: Expr) -> Expr | None:
        loads = far is not None and isinstance(node, tvm.ir.TensorLoad)
        if loads and tvm_ffi.structural_equal(node, permute.far):
            return far
        return here.get(node) if isinstance(node, tvm.ir.Var) else None

    store_result(permute.stage, rewrite(permute.stage.value, replace_node), here)

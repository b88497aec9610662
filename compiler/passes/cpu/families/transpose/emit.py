"""The kernel of programs that write along one axis and read along another.

Loop order: strips of WRITTEN places along the written axis over the threads; in a strip, blocks of
READ places along the read axis; in a block, squares of READ by one vector. A square is read line
by line into a copy on the stack, READ elements a line, and written from there, a vector a row.
Places that fill no square go one by one.

WRITTEN and READ elements are whole cache lines of 64 bytes for every dtype from 4 bytes on: a line
that is fetched or written is used up while it is in the first-level cache.
"""

import tvm
import tvm_ffi
from tvm import tirx

from compiler.passes.cpu.families.transpose.match import Permute
from compiler.passes.cpu.shared.loop_nest import write
from compiler.passes.cpu.shared.sharing import computed_once, share_places, worth_sharing
from compiler.targets.vector_unit import VectorUnit
from compiler.tir.building import (
    alloc,
    emit,
    let,
    otherwise,
    serial,
    statements,
    store,
    strips,
    vectorized,
    when,
)
from compiler.tir.exprs import Expr, Table, bits_of, dtype_of, load, rewrite, substitute
from compiler.tir.loops import Stmt

READ, WRITTEN = 16, 64
"""Elements of a block along the axis that is read, and along the one that is written."""


def emit_permute(permute: Permute, unit: VectorUnit) -> Stmt:
    """The body of a function that runs the program."""
    read, written, stage = permute.read, permute.written, permute.stage
    # The wider of what is read and what is written, so that one vector of each is enough.
    lanes = unit.lanes(max(map(bits_of, (dtype_of(stage.value), dtype_of(permute.far)))))
    outer = [axis for axis in stage.axes if axis is not read and axis is not written]
    # Along the written axis, so that threads hardly ever write to the same cache line.
    strips_of_row = tirx.ceildiv(written.extent, WRITTEN)
    with statements() as body:
        for stmt in permute.prelude:
            emit(stmt)
        for at, strip in share_places(computed_once(outer), strips_of_row, worth_sharing(stage)):
            start = let("start", strip * WRITTEN)
            count = let("count", tirx.min(WRITTEN, written.extent - start))
            with serial(tirx.ceildiv(read.extent, READ), "block") as block:
                _emit_block(permute, lanes, at, (block * READ, start), count)
    return body.stmt


def _emit_block(
    permute: Permute, lanes: int, at: Table, first: tuple[Expr, Expr], count: Expr
) -> None:
    """Emit READ places along the read axis, fewer at its end, by `count` along the written one.

    first: the block's first place along either axis.
    """
    i, j = first
    height = permute.read.extent - i
    with when(height >= READ):
        # At run time, since either extent may be unknown: the rest of a strip is fewer than one
        # vector, and the rest of the rows fewer than READ.
        squares = count // lanes
        with serial(squares, "square") as square:
            _emit_square(permute, lanes, at, (i, j + square * lanes))
        done = squares * lanes
        _emit_singly(permute, at, (i, j + done), (READ, count - done))
    with otherwise():
        _emit_singly(permute, at, first, (height, count))


def _emit_square(permute: Permute, lanes: int, at: Table, first: tuple[Expr, Expr]) -> None:
    """Emit READ by `lanes` elements, by way of a copy."""
    # Addresses that are a power of two apart share a set of the cache, which holds 8 to 12 lines of
    # it: read in the order of the result, lines would be evicted between their elements.
    copy = alloc([lanes * READ], dtype_of(permute.far), "copy")
    for line in range(lanes):
        for i in strips(READ, lanes):
            here = _place(permute, at, first[0] + i, first[1] + line)
            source = load(permute.far.source, [substitute(permute.far.indices[0], here)])
            store(copy, source, line * READ + i)
    with serial(READ, "i") as i, vectorized(lanes) as j:
        here = _place(permute, at, first[0] + i, first[1] + j)
        _emit_element(permute, here, load(copy, [j * READ + i]))


def _emit_singly(
    permute: Permute, at: Table, first: tuple[Expr, Expr], count: tuple[Expr | int, Expr]
) -> None:
    """Emit `count` places along either axis one by one."""
    with serial(count[0], "i") as i, serial(count[1], "j") as j:
        _emit_element(permute, _place(permute, at, first[0] + i, first[1] + j), None)


def _place(permute: Permute, at: Table, i: Expr, j: Expr) -> Table:
    return {**at, permute.read.var: i, permute.written.var: j}


def _emit_element(permute: Permute, here: Table, far: Expr | None) -> None:
    """Emit one element of the result, with `far` in place of the load with gaps if it is given."""

    def replaced(node: Expr) -> Expr | None:
        loads = far is not None and isinstance(node, tvm.ir.TensorLoad)
        if loads and tvm_ffi.structural_equal(node, permute.far):
            return far
        return here.get(node) if isinstance(node, tvm.ir.Var) else None

    write(permute.stage, rewrite(permute.stage.value, replaced), here)

"""The schedules of last resort: each loop nest over a grid as far as its blocks allow that, or the
whole program in one thread.
"""

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import Any

import tvm
import tvm_ffi
from tvm import s_tir, tirx
from tvm.tirx.stmt import ForKind

from compiler.tir.building import emit, statements, store, when
from compiler.tir.exprs import as_int, dtype_of
from compiler.tir.loops import PARALLEL_IF, multiply_extents, parallel_loop, seq, unfuse

_DATA_PARALLEL, _THREAD_INDEX = 0, 1


def bind_nests(func: tirx.PrimFunc, threads: int) -> tirx.PrimFunc:
    """Binds the outermost independent loops of each top-level nest to a grid of blocks of `threads`
    threads.

    A loop is independent if it is marked parallel, or drives only data-parallel axes of blocks.
    """
    root = _root(func.body)
    with statements() as kernels:
        for stmt in _statements(_without_vectors(root.body)):
            _emit_nest(stmt, threads)
    return _with_root(func, root, kernels.stmt)


def bind_one_thread(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """Runs each top-level statement of `func` in one thread, with buffers of symbolic size in the
    memory of the device.
    """
    scratch, body = _hoist(func.body)
    root = _root(body)
    with statements() as kernels:
        # TVM allocates a buffer at the innermost place around all its uses. A kernel of its own
        # that touches the buffer moves that place out of the other kernel, onto the host.
        for buffer in scratch:
            with _one_thread():
                store(buffer, 0, *[tirx.IntImm("int32", 0)] * len(buffer.shape))
        for stmt in _statements(_without_vectors(root.body)):
            with _one_thread():
                emit(stmt)
    return _with_root(func, root, kernels.stmt, scratch)


def _hoist(stmt: Any) -> tuple[list[Any], Any]:
    """Moves the buffers of symbolic size that `stmt` allocates to global memory; returns them, and
    `stmt` without their allocations.
    """
    allocations: list[Any] = []
    tvm_ffi.structural_walk(stmt, (tirx.AllocBuffer, allocations.append))
    scratch: dict[int, Any] = {}
    for buffer in (allocation.buffer for allocation in allocations):
        if any(as_int(extent) is None for extent in buffer.shape):
            scratch[buffer.__chandle__()] = tirx.decl_buffer(
                list(buffer.shape), str(buffer.dtype), name=buffer.name
            )
    if not scratch:
        return [], stmt
    hoisted = {buffer.__chandle__() for buffer in scratch.values()}

    def without(allocation: Any) -> Any:
        # Its buffer is replaced by then: the map goes from the leaves up.
        return seq() if allocation.buffer.__chandle__() in hoisted else allocation

    moves = [
        (tvm.ir.Var, lambda variable: scratch.get(variable.__chandle__(), variable)),
        (tirx.AllocBuffer, without),
    ]
    return list(scratch.values()), tvm_ffi.structural_map(stmt, moves)


def _root(body: Any) -> Any:
    """The block at the root of a function, one around the whole body where there is none."""
    if isinstance(body, s_tir.SBlockRealize) and not list(body.block.iter_vars):
        return body.block
    return s_tir.SBlock([], [], [], "root", body)


def _with_root(
    func: tirx.PrimFunc, root: Any, body: Any, scratch: Sequence[Any] = ()
) -> tirx.PrimFunc:
    """`func` with the root's body replaced, and `scratch` allocated beside its buffers."""
    buffers = [*root.alloc_buffers, *scratch]
    block = s_tir.SBlock(
        [], [], [], "root", body, alloc_buffers=buffers, annotations=root.annotations
    )
    return func.with_body(s_tir.SBlockRealize([], True, block))


def _without_vectors(stmt: Any) -> Any:
    """Turns vector loops into serial ones: loops written for processors have more lanes than
    devices accept.
    """

    def plain(loop: Any) -> Any:
        vector = loop.kind == ForKind.VECTORIZED
        return (
            tirx.For(loop.loop_var, loop.min, loop.extent, ForKind.SERIAL, loop.body)
            if vector
            else loop
        )

    return tvm_ffi.structural_map(stmt, [(tirx.For, plain)])


def _statements(body: Any) -> list[Any]:
    """The statements that can run as one kernel after another. A sequence that binds a variable or
    allocates a buffer stays one kernel.
    """
    if not isinstance(body, tirx.SeqStmt):
        return [body]
    stmts = [part for stmt in body.seq for part in _statements(stmt)]
    makers = (tirx.AllocBuffer, tirx.DeclBuffer, tirx.Bind)
    return [body] if any(isinstance(stmt, makers) for stmt in stmts) else stmts


def _emit_nest(stmt: Any, threads: int) -> None:
    """Emit a statement as one kernel: a thread for each iteration of its independent loops."""
    loops, body = [], stmt
    dependent = _dependent_variables(stmt)
    # Only outermost loops: those below a dependent one would be launched once for each iteration.
    while (loop := _independent_loop(body, dependent)) is not None:
        loops.append(loop)
        body = loop.body
    if not loops:
        with _one_thread():
            emit(stmt)
        return
    extents = [loop.extent for loop in loops]
    with _grid(multiply_extents(extents), threads, dtype_of(loops[0].loop_var)) as index:
        for loop, offset in zip(loops, unfuse(index, extents), strict=True):
            emit(tirx.Bind(loop.loop_var, loop.min + offset))
        emit(body)


def _independent_loop(stmt: Any, dependent: set[int]) -> tirx.For | None:
    """The loop that the statement is, None where its iterations may depend on each other."""
    if isinstance(stmt, tirx.AttrStmt) and str(stmt.attr_key) == PARALLEL_IF:
        before, loop = parallel_loop(stmt) or ([stmt], None)
        return None if before else loop
    if not isinstance(stmt, tirx.For):
        return None
    if stmt.kind == ForKind.PARALLEL:
        return stmt
    plain = stmt.kind == ForKind.SERIAL and stmt.step is None
    independent = plain and stmt.loop_var.__chandle__() not in dependent and _drives_blocks(stmt)
    return stmt if independent else None


def _drives_blocks(loop: tirx.For) -> bool:
    """True if the loop contains only blocks, whose axes say which iterations may run at once."""
    body = loop.body
    while isinstance(body, tirx.For):
        body = body.body
    return isinstance(body, s_tir.SBlockRealize)


def _dependent_variables(stmt: Any) -> set[int]:
    """The loop variables that some block binds to an axis that is not data-parallel."""
    variables: set[int] = set()

    def note(var: Any) -> None:
        variables.add(var.__chandle__())

    def visit(realize: Any) -> None:
        for axis, value in zip(realize.block.iter_vars, realize.iter_values, strict=True):
            if int(axis.iter_type) != _DATA_PARALLEL:
                tvm_ffi.structural_walk(value, (tvm.ir.Var, note))

    tvm_ffi.structural_walk(stmt, (s_tir.SBlockRealize, visit))
    return variables


@contextmanager
def _one_thread() -> Generator[None, None, None]:
    """The body as a kernel of a single thread."""
    # A kernel of one thread is slow, but the values never leave the device.
    one = tirx.IntImm("int32", 1)
    with _bound("blockIdx.x", one), _bound("threadIdx.x", one):
        yield


@contextmanager
def _grid(count: Any, threads: int, dtype: str) -> Generator[Any, None, None]:
    """The body as a kernel that runs for each index below `count`, one in each thread."""
    size = tirx.IntImm(dtype, threads)
    blocks = (count + tirx.IntImm(dtype, threads - 1)) // size
    with _bound("blockIdx.x", blocks) as block, _bound("threadIdx.x", size) as thread:
        index = tirx.Var("index", dtype)
        emit(tirx.Bind(index, block * size + thread))
        # The last block may reach past the end.
        with when(index < count):
            yield index


@contextmanager
def _bound(tag: str, extent: Any) -> Generator[Any, None, None]:
    """One iteration of the body for each block or thread of the grid's axis `tag`."""
    dtype = dtype_of(extent)
    var = tirx.Var(tag.partition("Idx")[0], dtype)
    axis = tirx.IterVar(None, tirx.Var(tag, dtype), _THREAD_INDEX, tag)
    with statements() as body:
        yield var
    emit(tirx.For(var, tirx.IntImm(dtype, 0), extent, ForKind.THREAD_BINDING, body.stmt, axis))

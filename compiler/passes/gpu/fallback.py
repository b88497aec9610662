"""The schedules of last resort: each loop nest over a grid as far as its blocks allow that, or the
whole program in one thread.
"""

from collections.abc import Sequence
from typing import Any

import tvm
import tvm_ffi
from tvm import s_tir, tirx
from tvm.tirx.stmt import ForKind

from compiler.tir.exprs import as_int, dtype_of
from compiler.tir.loops import Body, product, seq, unfuse

_DATA_PARALLEL, _THREAD_INDEX = 0, 1


def bind_nests(func: tirx.PrimFunc, threads: int) -> tirx.PrimFunc:
    """Binds the outermost independent loops of each top-level nest to a grid of blocks of `threads`
    threads.

    A loop is independent if it is marked parallel, or drives only data-parallel axes of blocks.
    """
    return _map_root(
        func,
        lambda body: seq(*(_nest(stmt, threads) for stmt in _statements(_without_vectors(body)))),
    )


def bind_one_thread(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """Runs each top-level statement of `func` in one thread, with buffers of symbolic size in the
    memory of the device.
    """
    scratch, body = _hoisted(func.body)
    # TVM allocates a buffer at the innermost place around all its uses. A kernel of its own that
    # touches the buffer moves that place out of the other kernel, onto the host.
    touches = [
        _alone(tirx.BufferStore(buffer, tirx.const(0, str(buffer.dtype)), [0] * len(buffer.shape)))
        for buffer in scratch
    ]

    def alone(body: Any) -> Any:
        return seq(*touches, *(_alone(stmt) for stmt in _statements(_without_vectors(body))))

    return _map_root(func.with_body(body), alone, scratch)


def _hoisted(stmt: Any) -> tuple[list[Any], Any]:
    """Moves the buffers of symbolic size that `stmt` allocates to global memory; returns them, and
    `stmt` without their allocations.
    """
    scratch: dict[int, Any] = {}

    def note(allocation: Any) -> None:
        buffer = allocation.buffer
        if any(as_int(extent) is None for extent in buffer.shape):
            scratch[buffer.__chandle__()] = tirx.decl_buffer(
                list(buffer.shape), str(buffer.dtype), name=buffer.name
            )

    def drop(allocation: Any) -> Any:
        return seq() if allocation.buffer.__chandle__() in fresh else allocation

    def replace(variable: Any) -> Any:
        return scratch.get(variable.__chandle__(), variable)

    tvm_ffi.structural_walk(stmt, (tirx.AllocBuffer, note))
    if not scratch:
        return [], stmt
    fresh = {buffer.__chandle__() for buffer in scratch.values()}
    return list(scratch.values()), tvm_ffi.structural_map(
        stmt, [(tvm.ir.Var, replace), (tirx.AllocBuffer, drop)]
    )


def _map_root(func: tirx.PrimFunc, change: Any, scratch: Sequence[Any] = ()) -> tirx.PrimFunc:
    body = func.body
    if isinstance(body, s_tir.SBlockRealize) and not list(body.block.iter_vars):
        root = body.block
        buffers, annotations, body = list(root.alloc_buffers), root.annotations, root.body
    else:
        buffers, annotations = [], {}
    block = s_tir.SBlock(
        [],
        [],
        [],
        "root",
        change(body),
        alloc_buffers=[*buffers, *scratch],
        annotations=annotations,
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


def _nest(stmt: Any, threads: int) -> Any:
    loops, body = [], stmt
    dependent = _dependent_variables(stmt)
    while isinstance(body, tirx.For) and _independent(body, dependent):
        loops.append(body)
        body = body.body
    if not loops:
        return _alone(stmt)
    dtype = dtype_of(loops[0].loop_var)
    extents = [loop.extent for loop in loops]

    def run(index: Any) -> Any:
        values = [loop.min + at for loop, at in zip(loops, unfuse(index, extents), strict=True)]
        return seq(
            *(tirx.Bind(loop.loop_var, value) for loop, value in zip(loops, values, strict=True)),
            body,
        )

    return _grid(product(extents), threads, run, dtype)


def _independent(loop: tirx.For, dependent: set[int]) -> bool:
    if loop.kind == ForKind.PARALLEL:
        return True
    plain = loop.kind == ForKind.SERIAL and loop.step is None
    return plain and loop.loop_var.__chandle__() not in dependent and _drives_blocks(loop)


def _drives_blocks(loop: tirx.For) -> bool:
    """Whether the loop contains only blocks, whose axes say which iterations may run at once."""
    body = loop.body
    while isinstance(body, tirx.For):
        body = body.body
    return isinstance(body, s_tir.SBlockRealize)


def _dependent_variables(stmt: Any) -> set[int]:
    """The loop variables that some block binds to an axis that is not data-parallel."""
    found: set[int] = set()

    def note(var: Any) -> None:
        found.add(var.__chandle__())

    def visit(realize: Any) -> None:
        for axis, value in zip(realize.block.iter_vars, realize.iter_values, strict=True):
            if int(axis.iter_type) != _DATA_PARALLEL:
                tvm_ffi.structural_walk(value, (tvm.ir.Var, note))

    tvm_ffi.structural_walk(stmt, (s_tir.SBlockRealize, visit))
    return found


def _alone(stmt: Any) -> Any:
    once = _bound("threadIdx.x", tirx.IntImm("int32", 1), lambda thread: stmt)
    return _bound("blockIdx.x", tirx.IntImm("int32", 1), lambda block: once)


def _grid(count: Any, threads: int, body: Body, dtype: str) -> Any:
    """Runs body(index) for each index below `count`, one in each thread."""
    size = tirx.IntImm(dtype, threads)

    def guarded(block: Any, thread: Any) -> Any:
        index = tirx.Var("index", dtype)
        return seq(
            tirx.Bind(index, block * size + thread),
            tirx.IfThenElse(index < count, body(index), None),
        )

    blocks = (count + tirx.IntImm(dtype, threads - 1)) // size
    return _bound(
        "blockIdx.x",
        blocks,
        lambda block: _bound("threadIdx.x", size, lambda thread: guarded(block, thread)),
    )


def _bound(tag: str, extent: Any, body: Body) -> Any:
    dtype = dtype_of(extent)
    var = tirx.Var(tag.partition("Idx")[0], dtype)
    axis = tirx.IterVar(None, tirx.Var(tag, dtype), _THREAD_INDEX, tag)
    return tirx.For(var, tirx.IntImm(dtype, 0), extent, ForKind.THREAD_BINDING, body(var), axis)

"""The kernel of any program: stages of any number of axes, with or without reductions.

Loop order: where stages have leading axes in common (the rows of a softmax), those rows over the
threads, and within a row stage after stage, so that what is between stages is one row in the
first-level cache. Otherwise one stage after the other, each with its outer axes over the threads.
The axis of contiguous stores is innermost, in vectors.
"""

from dataclasses import replace
from typing import Any

import tvm
from tvm import tirx

from compiler.passes.cpu.families.generic.match import pieces_of, shared_rows
from compiler.passes.cpu.shared.loop_nest import emit_stage, spatial_vector_axis
from compiler.passes.cpu.shared.sharing import extents_of, place_of, worth_sharing
from compiler.targets.vector_unit import VectorUnit
from compiler.tir.building import emit, let, share_out, statements
from compiler.tir.exprs import Expr, Table, as_int, const, load, rewrite, substitute
from compiler.tir.flat import Flattener, flatten_stage, merge_axes
from compiler.tir.loops import Stmt, product, unfuse
from compiler.tir.stages import Axis, Program, Stage

STRIP = 2048
"""Elements of one task when a single long axis is shared out: whole vectors and cache lines."""

STACK = 1024
"""Elements of a row that are kept on the stack at most; a thread's stack may be small."""

SMALL = 256
"""Elements that are too few for a task of their own."""


def emit_program(program: Program, unit: VectorUnit) -> Stmt:
    """The body of a function that runs the program; its parameters stay as they are."""
    flat = Flattener.of(program)
    rows = shared_rows(program)
    with statements() as body:
        # Rows are walked together for the sake of local buffers. Without any, each stage merges its
        # own axes and shares them out alone.
        if rows and program.locals:
            _emit_declarations(flat)
            _emit_rows(program, rows, flat, unit)
        else:
            for buffer in program.locals:
                flat.scratch(buffer)
            _emit_declarations(flat)
            for stage in program.stages:
                emit_parallel(merge_axes(flatten_stage(stage, flat)), unit)
    return body.stmt


def _emit_declarations(flat: Flattener) -> None:
    for stmt in (*flat.prelude, *flat.allocations):
        emit(stmt)


def _emit_rows(program: Program, rows: int, flat: Flattener, unit: VectorUnit) -> None:
    """Emit all stages for one row after the other, their local buffers as large as a row."""
    extents = extents_of(program.stages[0].axes[:rows])
    local = {buffer: _of_row(buffer, rows) for buffer in program.locals}
    for row in share_out(product(extents), worth_sharing(*program.stages)):
        place = unfuse(row, extents)
        inner = Flattener(dict(flat.views))
        for buffer in local.values():
            size = as_int(product(list(buffer.shape)))
            # Either place keeps its cache lines from row to row: the stack, or the thread's pool.
            inner.scratch(buffer, "global" if size is None or size > STACK else "local")
        _emit_declarations(inner)
        for stage in program.stages:
            here = flatten_stage(_at_row(stage, place, local), inner)
            emit_stage(merge_axes(here), unit)


def _of_row(buffer: Any, rows: int) -> Any:
    """A buffer for one row of a local buffer."""
    shape = list(buffer.shape)[rows:] or [const(1)]
    return tirx.decl_buffer(shape, buffer.dtype, name=buffer.name)


def _at_row(stage: Stage, place: list[Expr], local: dict[Any, Any]) -> Stage:
    """The stage at one place of the shared axes, on the buffers in `local` for one row."""
    rows = len(place)
    table: Table = dict(zip([axis.var for axis in stage.axes[:rows]], place, strict=True))

    def moved(node: Expr) -> Expr | None:
        if isinstance(node, tvm.ir.TensorLoad) and node.source in local:
            # The stages are at the same row here, which `shared_rows` has proved.
            inside = list(node.indices)[rows:]
            indices = [rewrite(substitute(index, table), moved) for index in inside]
            return load(local[node.source], indices or [0])
        return table.get(node) if isinstance(node, tvm.ir.Var) else None

    indices = tuple(substitute(index, table) for index in stage.indices)
    if stage.buffer in local:
        indices = indices[rows:] or (const(0),)
    return replace(
        stage,
        axes=stage.axes[rows:],
        buffer=local.get(stage.buffer, stage.buffer),
        indices=indices,
        value=rewrite(stage.value, moved),
        init=None if stage.init is None else rewrite(stage.init, moved),
    )


def emit_parallel(stage: Stage, unit: VectorUnit) -> None:
    """Emit the flat stage with its outer axes shared out over the threads."""
    worth = worth_sharing(stage)
    pieces, split = pieces_of(stage)
    if split is not None:
        _emit_pieces(stage, pieces, split, worth, unit)
        return
    column = spatial_vector_axis(stage)
    outer = [axis for axis in stage.spatial if axis is not column]
    if outer:
        # The place of a task takes divisions, which a few elements are not worth.
        if len(outer) >= 2 and _small(stage, outer[-1]):
            outer.pop()
        for task in share_out(product(extents_of(outer)), worth):
            emit_stage(stage, unit, place_of(outer, task))
    elif column is not None and not stage.reduced:
        _emit_strips(stage, column, STRIP, worth, unit)
    elif column is not None and stage.init is not None:
        # Few columns a task: every task walks all rows, and the rows are many.
        _emit_strips(stage, column, unit.lanes(32) * 4, worth, unit)
    else:
        emit_stage(stage, unit)


def _emit_pieces(
    stage: Stage, pieces: list[Stage], split: Axis, worth: Expr, unit: VectorUnit
) -> None:
    """Emit piece after piece for each place along the axes before the one that is split."""
    outer = stage.axes[: stage.axes.index(split)]
    if not outer:
        for piece in pieces:
            emit_parallel(piece, unit)
        return
    for task in share_out(product(extents_of(outer)), worth):
        at = place_of(outer, task)
        for piece in pieces:
            emit_stage(piece, unit, at)


def _small(stage: Stage, last: Axis) -> bool:
    """Whether a place along `last` has few elements behind it."""
    size = as_int(product(extents_of(stage.axes[stage.axes.index(last) + 1 :])))
    return size is not None and size < SMALL


def _emit_strips(stage: Stage, axis: Axis, size: int, worth: Expr, unit: VectorUnit) -> None:
    """Emit the stage in tasks of `size` places along `axis`."""
    whole = as_int(axis.extent)
    for task in share_out(tirx.ceildiv(axis.extent, size), worth):
        start = task * size
        if whole is not None and whole % size == 0:
            emit_stage(_part(stage, axis, start, const(size)), unit)
        else:
            # In a variable, since the loops over it would compute it again at every end.
            count = let("count", tirx.min(size, axis.extent - start))
            emit_stage(_part(stage, axis, start, count), unit)


def _part(stage: Stage, axis: Axis, start: Expr, extent: Expr) -> Stage:
    """The stage over `extent` places of `axis` from `start` on."""
    part = Axis(tirx.Var(axis.var.name, "int64"), extent, axis.reduce)
    table = {axis.var: start + part.var}
    return replace(
        stage,
        axes=tuple(part if own is axis else own for own in stage.axes),
        value=substitute(stage.value, table),
        indices=tuple(substitute(index, table) for index in stage.indices),
        init=None if stage.init is None else substitute(stage.init, table),
    )

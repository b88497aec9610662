"""The kernel of any program: stages of any number of axes, with or without reductions.

Loop order: where stages share leading axes (the rows of a softmax), those rows over the threads,
and within a row stage after stage, so that intermediate results are one row in the first-level
cache. A reduction that reads neighbouring results contiguously (the mean of an image with channels
last) keeps that axis within the row, in strips of some vectors. Otherwise one stage after the
other, each with its outer axes over the threads. The axis of contiguous stores is innermost, in
vectors.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import tvm
from tvm import tirx

from compiler.passes.cpu.families.generic import plan
from compiler.passes.cpu.families.generic.borders import borders_of, emit_borders
from compiler.passes.cpu.families.generic.match import (
    pieces_of,
    reduced_column,
    reuse_result,
    shared_rows,
)
from compiler.passes.cpu.shared import plan as shared_plan
from compiler.passes.cpu.shared.loop_nest import (
    emit_stage,
    emit_with_reduction,
    lanes_for,
    most_vectors,
    spatial_vector_axis,
    vector_axis,
)
from compiler.passes.cpu.shared.sharing import (
    extents_of,
    is_parallel_profitable,
    position_of,
    share_positions,
)
from compiler.passes.cpu.shared.strands import Strands, strands_of
from compiler.targets.vector_unit import VectorUnit
from compiler.tir.building import emit, let, otherwise, parallel, serial, statements, when
from compiler.tir.exprs import Expr, Table, as_int, const, load, require_int, rewrite, substitute
from compiler.tir.flat import Flattener, flatten_stage, merge_axes
from compiler.tir.loops import Stmt, multiply_extents, unfuse
from compiler.tir.stages import Axis, Program, Stage


def emit_program(program: Program, unit: VectorUnit) -> Stmt:
    """The body of a function that runs the program."""
    flat = Flattener.of(program)
    rows = shared_rows(program)
    column = reduced_column(program, rows)
    with statements() as body:
        # Stages share loops over rows for the sake of local buffers. Without any, each stage merges
        # its own axes and shares them out by itself.
        if rows and program.locals:
            _emit_declarations(flat)
            _emit_rows(program, rows if column is None else column, flat, unit, column is not None)
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


def _emit_rows(
    program: Program, rows: int, flat: Flattener, unit: VectorUnit, strips: bool
) -> None:
    """Emit all stages for a few rows, then for the next ones, with local buffers of that size.

    strips: True if the axis after the rows is shared out too, in strips of vectors of results.
    """
    first, parallel_if = program.stages[0].axes, is_parallel_profitable(*program.stages)
    extents = extents_of(first[:rows])
    if not strips:
        total, at_once = multiply_extents(extents), _rows_at_once(program, rows)
        if at_once == 1:
            program = reuse_result(program)
        with parallel(tirx.ceildiv(total, at_once), parallel_if) as task:
            begin = let("begin", task * at_once) if at_once > 1 else task
            count = tirx.min(at_once, total - begin) if at_once > 1 else const(1)
            _emit_stages(program, _Rows(begin, count, at_once, extents), flat, unit)
        return
    for strip in _choose_size(
        multiply_extents(extents), _strip_sizes(program.stages, first[rows], unit)
    ):
        parts = const(1) if strip is None else const(require_int(first[rows].extent) // strip)
        with parallel(multiply_extents([*extents, parts]), parallel_if) as task:
            row, part = unfuse(task, [multiply_extents(extents), parts])
            columns = None if strip is None else (part * strip, const(strip))
            _emit_stages(program, _Rows(row, const(1), 1, extents), flat, unit, columns)


def _rows_at_once(program: Program, rows: int) -> int:
    """The number of rows that a stage is computed for before the next one, so that lanes of a sum
    are reduced while the next row is read. Long rows gain little by it, and would share the
    first-level cache.
    """
    sizes = [as_int(multiply_extents(extents_of(stage.axes[rows:]))) for stage in program.stages]
    return (
        plan.ROWS_AT_ONCE if all(size is not None and size <= plan.SHORT for size in sizes) else 1
    )


@dataclass(frozen=True)
class _Rows:
    """`count` rows, at most `most`, from number `first` on, of shared axes with these extents."""

    first: Expr
    count: Expr
    most: int
    extents: list[Expr]


def _emit_stages(
    program: Program,
    rows: _Rows,
    flat: Flattener,
    unit: VectorUnit,
    columns: tuple[Expr, Expr] | None = None,
) -> None:
    """Emit each stage at all the rows; columns: a strip, (first, count), of the axis after the
    shared ones, all where None.
    """
    depth = len(rows.extents)
    local = {buffer: _row_buffer(buffer, depth, rows.most) for buffer in program.locals}
    inner = Flattener(dict(flat.views))
    for buffer in local.values():
        size = as_int(multiply_extents(list(buffer.shape)))
        # Both the stack and the thread's pool are at the same address for each row.
        inner.scratch(buffer, "global" if size is None or size > plan.STACK else "local")
    _emit_declarations(inner)

    def at_row(stage: Stage, row: Expr) -> Stage:
        at_position = _stage_at_row(stage, unfuse(rows.first + row, rows.extents), local, row)
        if columns is not None:
            at_position = _part(at_position, at_position.axes[0], *columns)
        return merge_axes(flatten_stage(at_position, inner))

    if rows.most == 1:
        _emit_long_row([at_row(stage, const(0)) for stage in program.stages], unit)
        return
    for stage in program.stages:
        with serial(rows.count, "row") as row:
            emit_stage(at_row(stage, row), unit)


def _emit_long_row(stages: Sequence[Stage], unit: VectorUnit) -> None:
    """Emit stage after stage; a stage and a reduction of its row that follows are one loop."""
    rest = list(stages)
    while rest:
        stage = rest.pop(0)
        if rest and emit_with_reduction(stage, rest[0], unit):
            rest.pop(0)
        else:
            emit_stage(stage, unit)


Size = int | None
"""Columns of a strip, None for all columns."""


def _strip_sizes(stages: Sequence[Stage], column: Axis, unit: VectorUnit) -> tuple[Size, Size]:
    """(columns of a task with few positions, with MANY): the most vectors that divide all columns.
    Few positions are divided into at least FEWEST strips, or into strips of up to VECTORS.
    """
    lanes = min(lanes_for(stage, unit) for stage in stages)
    extent = as_int(column.extent)
    if not extent or extent % lanes:
        return None, None
    fitting = [
        vectors for vectors in range(1, most_vectors(unit) + 1) if extent % (vectors * lanes) == 0
    ]
    cut = [
        vectors
        for vectors in fitting
        if vectors <= shared_plan.VECTORS or extent // (vectors * lanes) >= plan.FEWEST
    ]
    few, many = (vectors[-1] * lanes for vectors in (cut, fitting))
    return None if few == extent else few, None if many == extent else many


def _choose_size(positions: Expr, sizes: tuple[Size, Size]) -> Iterator[Size]:
    """The size of strips; both sizes, in branches, where only run time can tell."""
    few, many = sizes
    if few == many:
        yield few
        return
    with when(positions >= plan.MANY):
        yield many
    with otherwise():
        yield few


def _row_buffer(buffer: Any, depth: int, count: int) -> Any:
    """A buffer for `count` rows of a local buffer: the axes after its first `depth`."""
    shape = [const(count), *list(buffer.shape)[depth:]]
    return tirx.decl_buffer(shape, buffer.dtype, name=buffer.name)


def _stage_at_row(stage: Stage, position: list[Expr], local: dict[Any, Any], row: Expr) -> Stage:
    """The stage at one position of the shared axes, which is row number `row` of the buffers in
    `local`.
    """
    depth = len(position)
    table: Table = dict(zip([axis.var for axis in stage.axes[:depth]], position, strict=True))

    def replace_node(node: Expr) -> Expr | None:
        if isinstance(node, tvm.ir.TensorLoad) and node.source in local:
            # The stages are at the same row here, which `shared_rows` has proved.
            inside = list(node.indices)[depth:]
            return load(
                local[node.source], [row, *(rewrite(index, replace_node) for index in inside)]
            )
        return table.get(node) if isinstance(node, tvm.ir.Var) else None

    indices = tuple(substitute(index, table) for index in stage.indices)
    if stage.buffer in local:
        indices = (row, *indices[depth:])
    return replace(
        stage,
        axes=stage.axes[depth:],
        buffer=local.get(stage.buffer, stage.buffer),
        indices=indices,
        value=rewrite(stage.value, replace_node),
        init=None if stage.init is None else rewrite(stage.init, replace_node),
    )


def emit_parallel(stage: Stage, unit: VectorUnit) -> None:
    """Emit the flat stage with its outer axes shared out over the threads."""
    parallel_if = is_parallel_profitable(stage)
    pieces, split = pieces_of(stage)
    if split is not None:
        _emit_pieces(stage, pieces, split, parallel_if, unit)
        return
    borders = borders_of(stage)
    if borders is not None:
        emit_borders(borders, parallel_if, unit)
        return
    column = spatial_vector_axis(stage) if stage.reduced else vector_axis(stage, unit)
    strands = strands_of(stage) if column is None and not stage.reduced else None
    if strands is not None:
        _emit_strands(stage, strands, parallel_if, unit)
        return
    outer = [axis for axis in stage.spatial if axis is not column]
    if outer:
        along, size = column, plan.STRIP
        # The position of a task takes divisions, too many for a few elements.
        inner = _inner_size(stage, outer[-1]) if len(outer) >= 2 else None
        if inner is not None:
            along, size = outer.pop(), max(plan.STRIP // max(inner, 1), 1)
        if column is not None and stage.init is not None:
            _emit_reduced_strips(stage, outer, column, parallel_if, unit)
            return
        _emit_positions(stage, outer, (along, size), parallel_if, unit)
    elif column is not None and not stage.reduced:
        _emit_strips(stage, column, plan.STRIP, parallel_if, unit)
    elif column is not None and _strip_sizes((stage,), column, unit)[0] is not None:
        _emit_reduced_strips(stage, outer, column, parallel_if, unit)
    elif column is not None:
        # Few columns a task: each task walks all rows, of which there are many.
        _emit_strips(stage, column, unit.lanes(32) * shared_plan.VECTORS, parallel_if, unit)
    else:
        emit_stage(stage, unit)


def _emit_pieces(
    stage: Stage, pieces: list[Stage], split: Axis, parallel_if: Expr, unit: VectorUnit
) -> None:
    """Emit piece after piece for each position of the axes before the one that is split."""
    outer = stage.axes[: stage.axes.index(split)]
    if not outer:
        for piece in pieces:
            emit_parallel(piece, unit)
        return
    with parallel(multiply_extents(extents_of(outer)), parallel_if) as task:
        position = position_of(outer, task)
        for piece in pieces:
            emit_stage(piece, unit, position)


def _emit_strands(stage: Stage, strands: Strands, parallel_if: Expr, unit: VectorUnit) -> None:
    """Emit a stage of strands, in tasks of up to STRIP positions of each."""
    outer, (along, *_) = strands.others(stage.axes), strands.replaced
    length = as_int(along.extent)
    is_full = strands.axis is not along or (length is not None and length <= plan.STRIP)
    if is_full and outer:
        with parallel(multiply_extents(extents_of(outer)), parallel_if) as task:
            emit_stage(stage, unit, position_of(outer, task))
    elif is_full:
        emit_stage(stage, unit)
    else:
        for position, strip in share_positions(
            outer, tirx.ceildiv(along.extent, plan.STRIP), parallel_if
        ):
            start = strip * plan.STRIP
            count = let("count", tirx.min(plan.STRIP, along.extent - start))
            emit_stage(_part(stage, along, start, count), unit, position)


def _inner_size(stage: Stage, last: Axis) -> int | None:
    """The elements of one position along `last`, None unless they are known to be few."""
    size = as_int(multiply_extents(extents_of(stage.axes[stage.axes.index(last) + 1 :])))
    return size if size is not None and size < plan.SMALL else None


def _emit_positions(
    stage: Stage,
    outer: list[Axis],
    inner: tuple[Axis | None, int],
    parallel_if: Expr,
    unit: VectorUnit,
) -> None:
    """Emit the stage in tasks of an outer position by some positions of an inner axis, (axis,
    count): there may be a single outer position, as in a batch of one image.
    """
    along, size = inner
    if along is None or (as_int(along.extent) or size + 1) <= size:
        with parallel(multiply_extents(extents_of(outer)), parallel_if) as task:
            emit_stage(stage, unit, position_of(outer, task))
        return
    for position, strip in share_positions(outer, tirx.ceildiv(along.extent, size), parallel_if):
        start = strip * size
        count = let("count", tirx.min(size, along.extent - start))
        emit_stage(_part(stage, along, start, count), unit, position)


def _emit_strips(stage: Stage, axis: Axis, size: int, parallel_if: Expr, unit: VectorUnit) -> None:
    """Emit the stage in tasks of `size` positions along `axis`."""
    extent = as_int(axis.extent)
    with parallel(tirx.ceildiv(axis.extent, size), parallel_if) as task:
        start = task * size
        if extent is not None and extent % size == 0:
            emit_stage(_part(stage, axis, start, const(size)), unit)
        else:
            # In a variable, since the loops over it would compute it again at every end.
            count = let("count", tirx.min(size, axis.extent - start))
            emit_stage(_part(stage, axis, start, count), unit)


def _emit_reduced_strips(
    stage: Stage, outer: list[Axis], column: Axis, parallel_if: Expr, unit: VectorUnit
) -> None:
    """Emit a reduction in tasks of some vectors of columns at each outer position: the mean of an
    image has one outer position, and two threads halve its columns.
    """
    extents = extents_of(outer)
    for size in _choose_size(multiply_extents(extents), _strip_sizes((stage,), column, unit)):
        if size is None:
            with parallel(multiply_extents(extents), parallel_if) as task:
                emit_stage(stage, unit, position_of(outer, task))
            continue
        for position, part in share_positions(
            outer, const(require_int(column.extent) // size), parallel_if
        ):
            emit_stage(_part(stage, column, part * size, const(size)), unit, position)


def _part(stage: Stage, axis: Axis, start: Expr, extent: Expr) -> Stage:
    """The stage over `extent` positions of `axis` from `start` on."""
    part = Axis(tirx.Var(axis.var.name, "int64"), extent, axis.reduce)
    table = {axis.var: start + part.var}
    return replace(
        stage,
        axes=tuple(part if own is axis else own for own in stage.axes),
        value=substitute(stage.value, table),
        indices=tuple(substitute(index, table) for index in stage.indices),
        init=None if stage.init is None else substitute(stage.init, table),
    )

"""Any program of stages: rows shared by all stages are walked in parallel, scratch kept for one
row, axes in vectors.
"""

from dataclasses import replace
from typing import Any

import tvm
import tvm_ffi
from tvm import tirx
from tvm.ir.prim import expr as prim

from compiler.passes.cpu.shared.loop_nest import emit_stage, spatial_vector_axis
from compiler.passes.cpu.shared.sharing import extents_of, place_of
from compiler.targets.vector_unit import VectorUnit
from compiler.tir.exprs import (
    Expr,
    Table,
    as_int,
    children,
    const,
    is_choice,
    load,
    loads,
    rewrite,
    substitute,
    uses,
)
from compiler.tir.flat import (
    Flattener,
    analyzer_for,
    flatten_stage,
    merge_axes,
    substitute_accesses,
)
from compiler.tir.loops import Stmt, bind, product, seq, share_out, unfuse
from compiler.tir.stages import Axis, Program, Stage

PARALLEL_WORK = 1 << 17
"""Operations below which starting the other threads costs more than it saves."""

STRIP = 2048
"""Elements of one task when a single long axis is shared out."""


def emit_program(program: Program, unit: VectorUnit) -> Stmt:
    """The body of a function that runs the program; its parameters stay as they are."""
    rows = shared_rows(program)
    flat = Flattener.of(program)
    if rows and program.locals:
        return seq(*flat.prelude, _emit_rows(program, rows, flat, unit))
    for buffer in program.locals:
        flat.scratch(buffer)
    body = [emit_parallel(merge_axes(flatten_stage(stage, flat)), unit) for stage in program.stages]
    return seq(*flat.prelude, *flat.allocations, *body)


def shared_rows(program: Program) -> int:
    """How many leading axes every stage has in common: local buffers are written and read at the
    same row only.
    """
    common = min(len(stage.spatial) for stage in program.stages)
    first = program.stages[0]
    for depth in range(common):
        if not all(
            _same_axis(first, stage, depth) and _row_local(program, stage, depth)
            for stage in program.stages
        ):
            return depth
    return common


def _same_axis(first: Stage, stage: Stage, depth: int) -> bool:
    if depth >= len(stage.axes) or stage.axes[depth].reduce:
        return False
    same = tvm_ffi.structural_equal(first.axes[depth].extent, stage.axes[depth].extent)
    return (
        same and depth < len(stage.indices) and stage.indices[depth].same_as(stage.axes[depth].var)
    )


def _row_local(program: Program, stage: Stage, depth: int) -> bool:
    var = stage.axes[depth].var
    written = [*program.locals, *program.outputs]
    for one in loads(stage.value):
        if any(one.source.same_as(buffer) for buffer in written) and not (
            depth < len(one.indices) and one.indices[depth].same_as(var)
        ):
            return False
    return True


def _emit_rows(program: Program, rows: int, flat: Flattener, unit: VectorUnit) -> Stmt:
    axes = program.stages[0].axes[:rows]
    extents = extents_of(axes)
    local = {
        buffer: tirx.decl_buffer(
            list(buffer.shape)[rows:] or [const(1)], buffer.dtype, name=buffer.name
        )
        for buffer in program.locals
    }

    def row(index: Expr) -> Stmt:
        here = unfuse(index, extents)
        inner = Flattener(dict(flat.views))
        for buffer in local.values():
            inner.scratch(buffer, _scope(buffer))
        stages = [_at_row(stage, rows, here, local) for stage in program.stages]
        done = [emit_stage(merge_axes(flatten_stage(stage, inner)), unit) for stage in stages]
        return seq(*inner.allocations, *done)

    return share_out(product(extents), worth_sharing(*program.stages), row)


def _scope(buffer: Any) -> str:
    size = as_int(product(list(buffer.shape)))
    return "local" if size is not None and size <= 1024 else "global"


def _at_row(stage: Stage, rows: int, here: list[Expr], local: dict[Any, Any]) -> Stage:
    table: Table = dict(zip([axis.var for axis in stage.axes[:rows]], here, strict=True))
    own = local.get(stage.buffer)

    def visit(node: Expr) -> Expr | None:
        if isinstance(node, tvm.ir.TensorLoad) and node.source in local:
            return load(
                local[node.source],
                [rewrite(substitute(i, table), visit) for i in list(node.indices)[rows:]]
                or [const(0)],
            )
        return table.get(node) if isinstance(node, tvm.ir.Var) else None

    indices = tuple(substitute(index, table) for index in stage.indices)
    return replace(
        stage,
        axes=stage.axes[rows:],
        buffer=stage.buffer if own is None else own,
        indices=indices if own is None else (indices[rows:] or (const(0),)),
        value=rewrite(stage.value, visit),
        init=None if stage.init is None else rewrite(stage.init, visit),
    )


def operations(expr: Expr) -> int:
    """A rough count of the machine operations of one evaluation."""
    weights = {
        "tirx.exp": 12,
        "tirx.erf": 20,
        "tirx.tanh": 20,
        "tirx.sigmoid": 15,
        "tirx.pow": 60,
        "tirx.log": 20,
    }
    own = (
        weights.get(expr.op.name, 4)
        if isinstance(expr, tvm.ir.Call) and hasattr(expr.op, "name")
        else 1
    )
    return own + sum(
        operations(child) for child in children(expr) if not isinstance(expr, tvm.ir.TensorLoad)
    )


def worth_sharing(*stages: Stage) -> Expr:
    """Whether the operations of all the stages, over their extents, are worth other threads."""
    total: Expr = const(0)
    for stage in stages:
        total = total + product(extents_of(stage.axes)) * const(min(operations(stage.value), 200))
    return tvm.sym.Analyzer().simplify(total) >= const(PARALLEL_WORK)


def emit_parallel(stage: Stage, unit: VectorUnit) -> Stmt:
    """The stage with its outer axes shared out over the threads."""
    worth = worth_sharing(stage)
    pieces, split = pieces_of(stage)
    if split is not None:
        return _emit_pieces(stage, pieces, split, worth, unit)
    inner = spatial_vector_axis(stage)
    outer = tuple(axis for axis in stage.spatial if axis is not inner)
    if not outer and inner is not None and not stage.reduced:
        return _emit_line(stage, inner, worth, unit)
    if len(outer) >= 2 and _small(stage, outer[-1]):
        outer = outer[:-1]
    if not outer:
        return (
            emit_stage(stage, unit)
            if inner is None or stage.init is None
            else _emit_column_blocks(stage, inner, worth, unit)
        )
    return share_out(
        product(extents_of(outer)),
        worth,
        lambda index: emit_stage(stage, unit, place_of(outer, index)),
    )


def pieces_of(stage: Stage) -> tuple[list[Stage], Axis | None]:
    """A stage that chooses by where it stands along one axis, as a concatenation does, as a stage
    for each part of that axis.
    """
    split = _chosen_along(stage)
    if split is None:
        return [stage], None
    axis, start = split
    low = tvm.sym.Analyzer().simplify(tirx.max(tirx.min(start, axis.extent), const(0)))
    _condition, upper, lower = stage.value.args
    parts = [
        _piece(stage, axis, const(0), low, lower),
        _piece(stage, axis, low, axis.extent - low, upper),
    ]
    pieces = []
    for part in parts:
        inner = _chosen_along(part)
        at_same_axis = inner is not None and inner[0] is part.axes[stage.axes.index(axis)]
        pieces += pieces_of(part)[0] if at_same_axis else [part]
    return pieces, axis


def _chosen_along(stage: Stage) -> tuple[Axis, Expr] | None:
    """The axis and where its second part starts, where the value is `if_then_else(start <= axis,
    second, first)`.
    """
    if (
        stage.init is not None
        or not is_choice(stage.value)
        or not isinstance(stage.value.args[0], prim.LE)
    ):
        return None
    start, var = stage.value.args[0].a, stage.value.args[0].b
    axis = next((axis for axis in stage.spatial if axis.var.same_as(var)), None)
    if axis is None or any(uses(start, other.var) for other in stage.axes):
        return None
    return axis, start


def _piece(stage: Stage, axis: Axis, start: Expr, extent: Expr, value: Expr) -> Stage:
    part = Axis(tirx.Var(axis.var.name, "int64"), tvm.sym.Analyzer().simplify(extent))
    table = {axis.var: part.var + start}
    axes = tuple(part if own is axis else own for own in stage.axes)
    simplify = analyzer_for(axes).simplify
    return replace(
        stage,
        axes=axes,
        value=substitute_accesses(value, table, analyzer_for(axes)),
        indices=tuple(simplify(substitute(index, table)) for index in stage.indices),
    )


def _emit_pieces(
    stage: Stage, pieces: list[Stage], split: Axis, worth: Expr, unit: VectorUnit
) -> Stmt:
    """Every piece one after the other for each place along the axes before the one that
    is split.
    """
    place = stage.axes.index(split)
    outer = stage.axes[:place]
    if not outer:
        return seq(*(emit_parallel(piece, unit) for piece in pieces))

    def task(index: Expr) -> Stmt:
        at = place_of(outer, index)
        return seq(*(emit_stage(piece, unit, at) for piece in pieces))

    return share_out(product(extents_of(outer)), worth, task)


def _small(stage: Stage, last: Axis) -> bool:
    rest = product(extents_of(stage.axes[stage.axes.index(last) + 1 :]))
    size = as_int(rest)
    return size is not None and size < 256


def _emit_line(stage: Stage, axis: Axis, worth: Expr, unit: VectorUnit) -> Stmt:
    return share_out(
        tirx.ceildiv(axis.extent, const(STRIP)), worth, lambda t: _part(stage, axis, t, STRIP, unit)
    )


def _part(stage: Stage, axis: Axis, index: Expr, size: int, unit: VectorUnit) -> Stmt:
    start = index * const(size)
    inner = Axis(tirx.Var(axis.var.name, "int64"), tirx.min(const(size), axis.extent - start))

    def run(extent: Expr) -> Stmt:
        part = Axis(inner.var, extent, axis.reduce)
        table = {axis.var: start + inner.var}
        shifted = replace(
            stage,
            axes=tuple(part if a is axis else a for a in stage.axes),
            value=substitute(stage.value, table),
            indices=tuple(substitute(i, table) for i in stage.indices),
            init=None if stage.init is None else substitute(stage.init, table),
        )
        return emit_stage(shifted, unit)

    whole = as_int(axis.extent)
    if whole is not None and whole % size == 0:
        return run(const(size))
    return bind("count", inner.extent, run)


def _emit_column_blocks(stage: Stage, axis: Axis, worth: Expr, unit: VectorUnit) -> Stmt:
    size = unit.lanes(32) * 4
    return share_out(
        tirx.ceildiv(axis.extent, const(size)), worth, lambda t: _part(stage, axis, t, size, unit)
    )

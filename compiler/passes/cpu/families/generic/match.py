"""Loops that the stages of a program can share, and stages that are a concatenation along an
axis.
"""

from dataclasses import replace
from typing import Any

import tvm
import tvm_ffi
from tvm import tirx
from tvm.ir.prim import expr as prim

from compiler.passes.cpu.shared.loop_nest import combine_of, spatial_vector_axis
from compiler.tir.exprs import Expr, const, is_choice, load, loads, rewrite, substitute, uses
from compiler.tir.flat import Flattener, analyzer_for, flatten_stage, substitute_accesses
from compiler.tir.stages import Axis, Program, Stage


def shared_rows(program: Program) -> int:
    """The number of leading axes that all stages share: along them, local buffers are written and
    read at the same position only.
    """
    common = min(len(stage.spatial) for stage in program.stages)
    for depth in range(common):
        for stage in program.stages:
            if not _same_axis(program.stages[0], stage, depth):
                return depth
            if not _is_row_local(program, stage, depth):
                return depth
    return common


def reduced_column(program: Program, rows: int) -> int | None:
    """The first of the shared axes along which reductions can be computed in vectors of
    neighbouring results; None where there is no such axis.
    """
    flat = Flattener.of(program)
    for buffer in program.locals:
        flat.scratch(buffer)
    columns = {
        _column(flatten_stage(stage, flat), stage)
        for stage in program.stages
        if stage.init is not None and stage.reduced
    }
    depth = columns.pop() if len(columns) == 1 else None
    return depth if depth is not None and depth < rows else None


def _column(flat: Stage, stage: Stage) -> int | None:
    """The axis of the stage along which its flat form is computed in vectors."""
    combine = combine_of(flat)
    column = None if combine is None else spatial_vector_axis(flat.map_value(combine.term))
    return None if column is None else stage.axes.index(column)


def _same_axis(first: Stage, stage: Stage, depth: int) -> bool:
    if stage.axes[depth].reduce or depth >= len(stage.indices):
        return False
    if not tvm_ffi.structural_equal(first.axes[depth].extent, stage.axes[depth].extent):
        return False
    return bool(stage.indices[depth].same_as(stage.axes[depth].var))


def _is_row_local(program: Program, stage: Stage, depth: int) -> bool:
    """True if the stage reads results of the program at its own position along the axis only."""
    var = stage.axes[depth].var
    buffers = [*program.locals, *program.outputs]
    reads = [
        read
        for read in loads(stage.value)
        if any(read.source.same_as(buffer) for buffer in buffers)
    ]
    return all(depth < len(read.indices) and read.indices[depth].same_as(var) for read in reads)


def reuse_result(program: Program) -> Program:
    """Replace a local buffer by the result, if the last stage computes each element of the result
    from the buffer's element at the same position, and from other local buffers.
    """
    *before, last = program.stages
    result = last.buffer
    if result in program.locals or last.init is not None:
        return program
    if any(_touches(stage, result) for stage in before) or _reads(last, result):
        return program
    for buffer in program.locals:
        if _reads_own_element(last, buffer):
            stages = tuple(_replace_buffer(stage, buffer, result) for stage in program.stages)
            rest = tuple(own for own in program.locals if not own.same_as(buffer))
            return replace(program, locals=rest, stages=stages)
    return program


def _reads(stage: Stage, buffer: Any) -> list[Any]:
    return [read for read in loads(stage.value) if read.source.same_as(buffer)]


def _touches(stage: Stage, buffer: Any) -> bool:
    return bool(stage.buffer.same_as(buffer) or _reads(stage, buffer))


def _reads_own_element(stage: Stage, buffer: Any) -> bool:
    """True if the stage reads the buffer, which is like its own, at the position it writes only."""
    own, reads = stage.buffer, _reads(stage, buffer)
    return (
        bool(reads)
        and buffer.dtype == own.dtype
        and bool(tvm_ffi.structural_equal(buffer.shape, own.shape))
        and all(
            tvm_ffi.structural_equal(index, own_index)
            for read in reads
            for index, own_index in zip(read.indices, stage.indices, strict=True)
        )
    )


def _replace_buffer(stage: Stage, buffer: Any, to: Any) -> Stage:
    """The stage with `buffer` replaced by `to`."""

    def visit(node: Expr) -> Expr | None:
        if isinstance(node, tvm.ir.TensorLoad) and node.source.same_as(buffer):
            return load(to, [rewrite(index, visit) for index in node.indices])
        return None

    own = to if stage.buffer.same_as(buffer) else stage.buffer
    return replace(stage, buffer=own, value=rewrite(stage.value, visit))


def pieces_of(stage: Stage) -> tuple[list[Stage], Axis | None]:
    """Split a stage that chooses by the index along one axis, such as a concatenation, into a stage
    for each part of that axis; the axis is None where it is not split.
    """
    split = _find_split(stage)
    if split is None:
        return [stage], None
    axis, start = split
    # Dims may put the start past either end: then one of the parts is empty.
    low = tvm.sym.Analyzer().simplify(tirx.max(tirx.min(start, axis.extent), const(0)))
    _condition, upper, lower = stage.value.args
    parts = [
        _make_piece(stage, axis, const(0), low, lower),
        _make_piece(stage, axis, low, axis.extent - low, upper),
    ]
    pieces = []
    for part in parts:
        # A concatenation of three is a choice within a choice. A choice along another axis is not
        # part of it.
        inner = _find_split(part)
        along_same = inner is not None and inner[0] is part.axes[stage.axes.index(axis)]
        pieces += pieces_of(part)[0] if along_same else [part]
    return pieces, axis


def _find_split(stage: Stage) -> tuple[Axis, Expr] | None:
    """(axis, start of its second part) of a value `if_then_else(start <= axis, second, first)`."""
    value = stage.value
    if stage.init is not None or not is_choice(value) or not isinstance(value.args[0], prim.LE):
        return None
    start, var = value.args[0].a, value.args[0].b
    axis = next((axis for axis in stage.spatial if axis.var.same_as(var)), None)
    if axis is None or any(uses(start, other_axis.var) for other_axis in stage.axes):
        return None
    return axis, start


def _make_piece(stage: Stage, axis: Axis, start: Expr, extent: Expr, value: Expr) -> Stage:
    part = Axis(tirx.Var(axis.var.name, "int64"), tvm.sym.Analyzer().simplify(extent))
    table = {axis.var: part.var + start}
    axes = tuple(part if own is axis else own for own in stage.axes)
    # Simplified, offsets of most parts are contiguous.
    analyzer = analyzer_for(axes)
    return replace(
        stage,
        axes=axes,
        value=substitute_accesses(value, table, analyzer),
        indices=tuple(analyzer.simplify(substitute(index, table)) for index in stage.indices),
    )

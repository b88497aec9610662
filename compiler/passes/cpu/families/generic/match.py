"""What the loops of a program can share: leading axes that all stages have in common, and stages
that are a concatenation along an axis.
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
    """How many leading axes every stage has in common: local buffers are written and read at the
    same row only.
    """
    common = min(len(stage.spatial) for stage in program.stages)
    for depth in range(common):
        for stage in program.stages:
            if not _same_axis(program.stages[0], stage, depth):
                return depth
            if not _row_local(program, stage, depth):
                return depth
    return common


def reduced_column(program: Program, rows: int) -> int | None:
    """The first of the shared rows along which the stages that reduce can be computed in vectors,
    being nothing but neighbouring results; None where there is no such axis.
    """
    flat = Flattener.of(program)
    for buffer in program.locals:
        flat.scratch(buffer)
    found = {
        _column(flatten_stage(stage, flat), stage)
        for stage in program.stages
        if stage.init is not None and stage.reduced
    }
    depth = found.pop() if len(found) == 1 else None
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


def _row_local(program: Program, stage: Stage, depth: int) -> bool:
    """Whether the stage reads what the program writes at its own place along the axis alone."""
    var = stage.axes[depth].var
    written = [*program.locals, *program.outputs]
    reads = [
        one for one in loads(stage.value) if any(one.source.same_as(buffer) for buffer in written)
    ]
    return all(depth < len(one.indices) and one.indices[depth].same_as(var) for one in reads)


def kept_in_result(program: Program) -> Program:
    """The program with a local buffer in the place of its result, if the last stage computes each
    element of that from what the buffer holds at the same place, and other local buffers.
    """
    *before, last = program.stages
    result = last.buffer
    if result in program.locals or last.init is not None:
        return program
    if any(_touches(stage, result) for stage in before) or _reads(last, result):
        return program
    for buffer in program.locals:
        if _in_place(last, buffer):
            stages = tuple(_moved(stage, buffer, result) for stage in program.stages)
            rest = tuple(own for own in program.locals if not own.same_as(buffer))
            return replace(program, locals=rest, stages=stages)
    return program


def _reads(stage: Stage, buffer: Any) -> list[Any]:
    return [one for one in loads(stage.value) if one.source.same_as(buffer)]


def _touches(stage: Stage, buffer: Any) -> bool:
    return bool(stage.buffer.same_as(buffer) or _reads(stage, buffer))


def _in_place(stage: Stage, buffer: Any) -> bool:
    """Whether the stage reads of the buffer, which is like its own, the place it writes alone."""
    own, reads = stage.buffer, _reads(stage, buffer)
    return (
        bool(reads)
        and buffer.dtype == own.dtype
        and bool(tvm_ffi.structural_equal(buffer.shape, own.shape))
        and all(
            tvm_ffi.structural_equal(index, written)
            for one in reads
            for index, written in zip(one.indices, stage.indices, strict=True)
        )
    )


def _moved(stage: Stage, buffer: Any, to: Any) -> Stage:
    """The stage with another buffer in the place of one."""

    def visit(node: Expr) -> Expr | None:
        if isinstance(node, tvm.ir.TensorLoad) and node.source.same_as(buffer):
            return load(to, [rewrite(index, visit) for index in node.indices])
        return None

    own = to if stage.buffer.same_as(buffer) else stage.buffer
    return replace(stage, buffer=own, value=rewrite(stage.value, visit))


def pieces_of(stage: Stage) -> tuple[list[Stage], Axis | None]:
    """A stage that chooses by where it stands along one axis, as a concatenation does, as a stage
    for each part of that axis.
    """
    split = _chosen_along(stage)
    if split is None:
        return [stage], None
    axis, start = split
    # Dims may put the start past either end: then one of the parts is empty.
    low = tvm.sym.Analyzer().simplify(tirx.max(tirx.min(start, axis.extent), const(0)))
    _condition, upper, lower = stage.value.args
    parts = [
        _piece(stage, axis, const(0), low, lower),
        _piece(stage, axis, low, axis.extent - low, upper),
    ]
    pieces = []
    for part in parts:
        # A concatenation of three is a choice within a choice. A choice along another axis is not
        # part of it.
        inner = _chosen_along(part)
        along_same = inner is not None and inner[0] is part.axes[stage.axes.index(axis)]
        pieces += pieces_of(part)[0] if along_same else [part]
    return pieces, axis


def _chosen_along(stage: Stage) -> tuple[Axis, Expr] | None:
    """The axis, and where its second part starts, of a value `if_then_else(start <= axis, second,
    first)`.
    """
    value = stage.value
    if stage.init is not None or not is_choice(value) or not isinstance(value.args[0], prim.LE):
        return None
    start, var = value.args[0].a, value.args[0].b
    axis = next((axis for axis in stage.spatial if axis.var.same_as(var)), None)
    if axis is None or any(uses(start, other.var) for other in stage.axes):
        return None
    return axis, start


def _piece(stage: Stage, axis: Axis, start: Expr, extent: Expr, value: Expr) -> Stage:
    part = Axis(tirx.Var(axis.var.name, "int64"), tvm.sym.Analyzer().simplify(extent))
    table = {axis.var: part.var + start}
    axes = tuple(part if own is axis else own for own in stage.axes)
    # Offsets lose the start where a part begins at it: what is left is contiguous in most parts.
    analyzer = analyzer_for(axes)
    return replace(
        stage,
        axes=axes,
        value=substitute_accesses(value, table, analyzer),
        indices=tuple(analyzer.simplify(substitute(index, table)) for index in stage.indices),
    )

"""Stages with different values inside and outside of an image, such as padding.

Loop order: the axes before the last one with a border are shared out over the threads; then that
axis in up to three parts: before, inside and after. One condition for each row decides if it is
inside. A condition for each element took five times as long for an image of three colours.
"""

from dataclasses import dataclass, replace

from tvm import tirx

from compiler.passes.cpu.shared.loop_nest import emit_stage
from compiler.passes.cpu.shared.sharing import extents_of, position_of
from compiler.targets.vector_unit import VectorUnit
from compiler.tir.building import let_all, let_opaque, otherwise, parallel, when
from compiler.tir.conditions import Limits, conjuncts, limits_along
from compiler.tir.exprs import Expr, Table, const, is_choice, nodes, rewrite, substitute, uses
from compiler.tir.flat import analyzer_for, substitute_accesses
from compiler.tir.loops import multiply_extents
from compiler.tir.stages import Axis, Stage


@dataclass(frozen=True)
class Borders:
    """`inside` where `rows`, conditions on the axes before `axis`, hold and the axis is within its
    limits; `outside` everywhere else.
    """

    inside: Stage
    outside: Stage
    rows: tuple[Expr, ...]
    axis: Axis
    limits: Limits


def borders_of(stage: Stage) -> Borders | None:
    """Read a flat stage as `Borders`, None if it is none or has no axis to share out."""
    choices = [node for node in nodes(stage.value) if is_choice(node)]
    if stage.init is not None or len(choices) != 1:
        return None
    (choice,) = choices
    conditions = list(conjuncts(choice.args[0]))
    cut = [
        axis for axis in stage.axes if any(uses(condition, axis.var) for condition in conditions)
    ]
    if not cut or stage.axes.index(cut[-1]) == 0:
        return None
    axis = cut[-1]
    along = [condition for condition in conditions if uses(condition, axis.var)]
    limits = limits_along(along, axis.var, axis.extent)
    if limits is None:
        return None
    inside, outside = (_take_side(stage, choice, side) for side in choice.args[1:])
    rows = tuple(condition for condition in conditions if not uses(condition, axis.var))
    return Borders(inside, outside, rows, axis, limits)


def _take_side(stage: Stage, choice: Expr, side: Expr) -> Stage:
    """The stage with the choice replaced by one side."""
    value = rewrite(stage.value, lambda node: side if node.same_as(choice) else None)
    return replace(stage, value=value)


def emit_borders(borders: Borders, parallel_if: Expr, unit: VectorUnit) -> None:
    """Emit the stage in tasks of a row of the axis."""
    axis, stage = borders.axis, borders.inside
    outer = stage.axes[: stage.axes.index(axis)]
    with parallel(multiply_extents(extents_of(outer)), parallel_if) as task:
        position = let_all(position_of(outer, task))
        with when(
            tirx.all(*(substitute(row, position) for row in borders.rows)) if borders.rows else True
        ):
            first, last = (let_opaque("limit", substitute(end, position)) for end in borders.limits)
            _emit_part(borders.outside, axis, const(0), first, position, unit)
            _emit_part(stage, axis, first, last - first, position, unit)
            _emit_part(borders.outside, axis, last, axis.extent - last, position, unit)
        with otherwise():
            emit_stage(borders.outside, unit, position)


def _emit_part(
    stage: Stage, axis: Axis, start: Expr, extent: Expr, position: Table, unit: VectorUnit
) -> None:
    """Emit `extent` positions of the axis from `start` on."""
    part = Axis(tirx.Var(axis.var.name, "int64"), extent)
    axes = tuple(part if own is axis else own for own in stage.axes)
    table, analyzer = {axis.var: part.var + start}, analyzer_for(axes)
    part_stage = replace(
        stage,
        axes=axes,
        value=substitute_accesses(stage.value, table, analyzer),
        indices=tuple(analyzer.simplify(substitute(index, table)) for index in stage.indices),
    )
    emit_stage(part_stage, unit, position)

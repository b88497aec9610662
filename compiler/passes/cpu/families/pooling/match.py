"""Recognition of sliding windows over images with channels last, and of the columns whose window is
inside the image.
"""

from dataclasses import dataclass, replace

import tvm
import tvm_ffi
from tvm import tirx
from tvm.ir.prim import expr as prim

from compiler.passes.cpu.families.family import Declined
from compiler.passes.cpu.shared.loop_nest import Combine, is_short
from compiler.passes.cpu.shared.reduction import AnchoredProgram, read_anchored
from compiler.passes.cpu.shared.vectorizable import is_vectorizable
from compiler.targets.vector_unit import VectorUnit
from compiler.tir.conditions import conjuncts, slack_of
from compiler.tir.exprs import (
    Expr,
    as_int,
    const,
    dtype_of,
    is_choice,
    loads,
    nodes,
    require_int,
    rewrite,
    uses,
)
from compiler.tir.flat import flatten_stage, stride
from compiler.tir.stages import Axis, Program

MOST_STEPS = 4
"""The greatest stride of windows that is recognised."""


@dataclass(frozen=True)
class Window:
    """A reduction over a window of `outer` and `taps` at (`rows`, `column`) for each of `channels`.

    row_inside: conditions on rows and `outer`; column_inside: on column and `taps`; combine: of a
    tap that is inside;
    first, last: all taps of the columns in [first, last) are inside. inner_rows: the same of the
    last axis of rows, None where unknown. steps: strides of the last axis of rows and of the
    column, in steps of the window; 0 where unknown.
    """

    rows: tuple[Axis, ...]
    column: Axis
    channels: Axis
    outer: tuple[Axis, ...]
    taps: Axis
    row_inside: tuple[Expr, ...]
    column_inside: tuple[Expr, ...]
    first: Expr
    last: Expr
    inner_rows: tuple[Expr, Expr] | None
    steps: tuple[int, int]
    combine: Combine
    init: Expr
    anchored: AnchoredProgram

    @property
    def image(self) -> Expr | None:
        """The one load of the term that depends on the column, None where there are several."""
        reads = [
            read for read in loads(self.combine.term) if uses(read.indices[0], self.column.var)
        ]
        plain = len(reads) == 1 and as_int(stride(reads[0].indices[0], self.channels.var)) == 1
        return reads[0] if plain else None

    @property
    def tap_count(self) -> int | None:
        """Positions of the window, None where that is not known."""
        size = 1
        for axis in (*self.outer, self.taps):
            extent = as_int(axis.extent)
            if extent is None:
                return None
            size *= extent
        return size


def match_window(program: Program, unit: VectorUnit) -> Window | Declined:
    """Read the program as a sliding window."""
    anchored = read_anchored(program)
    if anchored is None:
        return Declined("it is no reduction followed by elementwise stages")
    anchor, combine = anchored.anchor, anchored.combine
    if len(anchor.spatial) < 3 or len(anchor.reduced) < 2:
        return Declined("its result is no image, or it is reduced over no window")
    # This removes axes of extent 1, such as the groups of a depthwise convolution.
    stage = flatten_stage(anchor.map_value(combine.term), anchored.flat)
    if len(stage.spatial) < 2 or not stage.reduced:
        return Declined("its image or its window has a single element")
    column, channels, taps = stage.spatial[-2], stage.spatial[-1], stage.reduced[-1]
    if as_int(channels.extent) is None or as_int(taps.extent) is None:
        return Declined("the number of its channels or the width of its window is not known")
    inside, term = _remove_padding(stage.value, combine, stage.init)
    if term is None:
        return Declined("what it reads beside the image changes the result")
    if not _in_vectors(anchored, term, channels):
        return Declined("its channels are not last, or cannot be computed in vectors")
    row_inside, column_inside = _split_conditions(inside, column, taps)
    # Conditions on the column have one pair of ends for all rows: the loops are split there.
    others = (*stage.spatial[:-2], channels, *stage.reduced[:-1])
    if any(uses(condition, axis.var) for condition in column_inside for axis in others):
        return Declined("which taps are inside depends on rows and columns at once")
    bounds = _bounds(column_inside, column, taps)
    if bounds is None:
        return Declined("the columns whose window lies inside have no known ends")
    rows, outer = stage.spatial[:-2], stage.reduced[:-1]
    return Window(
        rows=rows,
        column=column,
        channels=channels,
        outer=outer,
        taps=taps,
        row_inside=row_inside,
        column_inside=column_inside,
        first=bounds[0],
        last=bounds[1],
        inner_rows=_inner_rows(row_inside, rows, outer),
        steps=(_steps(term, rows[-1:], outer[-1:]), _steps(term, (column,), (taps,))),
        combine=replace(combine, term=term),
        init=stage.init,
        anchored=anchored,
    )


def _remove_padding(term: Expr, combine: Combine, init: Expr) -> tuple[list[Expr], Expr | None]:
    """(conditions that a tap is inside, term of a tap that is); the term is None where padding
    changes the result.
    """
    choices = [node for node in nodes(term) if is_choice(node)]
    if not choices:
        return [], term
    condition, inside, outside = choices[0].args
    # A maximum starts from the least value and pads with it, a sum with zeros.
    neutral = combine.identity(init, dtype_of(outside))
    if len(choices) > 1 or not tvm_ffi.structural_equal(outside, neutral):
        return [], None
    if term.same_as(choices[0]):
        return list(conjuncts(condition)), inside
    # In a depthwise convolution a weight times the padding is zero as well.
    scales = (
        combine.node is prim.Add
        and isinstance(term, prim.Mul)
        and any(side.same_as(choices[0]) for side in (term.a, term.b))
    )
    plain = rewrite(term, lambda node: inside if node.same_as(choices[0]) else None)
    return list(conjuncts(condition)), plain if scales else None


def _in_vectors(anchored: AnchoredProgram, term: Expr, channels: Axis) -> bool:
    """True if taps and epilogue can be computed in vectors of neighbouring channels."""
    # Three colours do not fill a vector: such images are left to the generic kernel.
    last = anchored.anchor.spatial[-1].var.same_as(channels.var) and not is_short(channels)
    return (
        last and is_vectorizable(term, channels.var) and anchored.epilogue.in_vectors(channels.var)
    )


def _split_conditions(
    conditions: list[Expr], column: Axis, taps: Axis
) -> tuple[tuple[Expr, ...], tuple[Expr, ...]]:
    """The conditions on rows, and those on the column or the taps along it."""
    rows: list[Expr] = []
    columns: list[Expr] = []
    for condition in conditions:
        # Without padding along the row there is none of the latter, and no border.
        along = uses(condition, column.var) or uses(condition, taps.var)
        (columns if along else rows).append(condition)
    return tuple(rows), tuple(columns)


def _bounds(conditions: tuple[Expr, ...], column: Axis, taps: Axis) -> tuple[Expr, Expr] | None:
    """[first, end) of the columns for which the conditions hold at every tap."""
    first: Expr = const(0)
    last: Expr = column.extent
    for condition in conditions:
        limit = _limit(condition, column, taps)
        if limit is None:
            return None
        is_low, value = limit
        if is_low:
            first = tirx.max(first, value)
        else:
            last = tirx.min(last, value + 1)
    # A window wider than its image has no column that is wholly inside.
    return tirx.min(first, column.extent), tirx.max(last, 0)


def _inner_rows(
    conditions: tuple[Expr, ...], rows: tuple[Axis, ...], outer: tuple[Axis, ...]
) -> tuple[Expr, Expr] | None:
    """[first, end) of the last axis of rows for which all taps are inside, whatever the others are;
    None where that is not known.
    """
    if not rows or len(outer) > 1:
        return None
    if not conditions:
        return const(0), rows[-1].extent
    others = [
        axis for axis in rows[:-1] if any(uses(condition, axis.var) for condition in conditions)
    ]
    if others or not outer or as_int(outer[0].extent) is None:
        return None
    return _bounds(conditions, rows[-1], outer[0])


def _steps(term: Expr, axes: tuple[Axis, ...], taps: tuple[Axis, ...]) -> int:
    """The stride of an axis in steps of the window, 0 unless it is at most MOST_STEPS."""
    if not axes or not taps:
        return 0
    analyzer = tvm.sym.Analyzer()
    for index in (read.indices[0] for read in loads(term)):
        if not uses(index, axes[0].var):
            continue
        axis_stride, tap_stride = (stride(index, axis.var) for axis in (axes[0], taps[0]))
        if axis_stride is None or tap_stride is None:
            return 0
        for count in range(1, MOST_STEPS + 1):
            if analyzer.can_prove_equal(axis_stride, tap_stride * count):
                return count
    return 0


def _limit(condition: Expr, column: Axis, taps: Axis) -> tuple[bool, Expr] | None:
    """(True, lowest) or (False, highest): the columns for which the condition holds at
    every tap.
    """
    slack = slack_of(condition)
    if slack is None:
        return None
    parts = tvm.sym.detect_linear_equation(slack, [column.var, taps.var])
    if len(parts) != 3:
        return None
    step, reach, rest = as_int(parts[0]), as_int(parts[1]), parts[2]
    if not step or reach is None:
        return None
    # The tap that is furthest out decides: the last where slack falls along the window.
    margin = rest + min(0, reach * (require_int(taps.extent) - 1))
    simplify = tvm.sym.Analyzer().simplify
    if step > 0:
        return True, simplify(tirx.ceildiv(-margin, step))
    return False, simplify(tirx.floordiv(margin, -step))

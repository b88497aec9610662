"""Sliding windows over images with channels last: depthwise convolution and pooling.

A task is one row of the result. Columns whose window lies wholly inside the image are computed
several at a time, channels in vectors, with no condition; those at the borders one by one, each tap
behind its condition.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import compress
from operator import not_

import tvm
import tvm_ffi
from tvm import tirx
from tvm.ir.prim import expr as prim

from compiler.passes.cpu.families.generic.emit import worth_sharing
from compiler.passes.cpu.shared.loop_nest import Combine, is_short, lanes_for, nest, vectorizable
from compiler.passes.cpu.shared.reduction import Anchored, read_anchored
from compiler.passes.cpu.shared.register_tile import tile
from compiler.passes.cpu.shared.sharing import share_parts
from compiler.targets.vector_unit import VectorUnit
from compiler.tir.exprs import (
    Expr,
    Table,
    as_int,
    const,
    dtype_of,
    fixed,
    is_choice,
    load,
    nodes,
    rewrite,
    substitute,
    uses,
)
from compiler.tir.flat import flatten_stage
from compiler.tir.loops import Stmt, allocate, bind, blocks, seq, serial, store, when
from compiler.tir.stages import Axis, Program

COLUMNS = 4
"""Columns computed together: each weight that is loaded serves so many sums."""
MANY_TAPS = 8
"""Taps along a row from which on twice as many columns are."""


@dataclass(frozen=True)
class Window:
    """A reduction over a window of `outer` and `taps` at (`rows`, `column`) for each of `channels`.

    row_inside: conditions on rows and `outer`; column_inside: on column and `taps`; combine: of a
    tap that is inside;
    first, last: the columns from `first` up to but not including `last` have all their taps inside.
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
    combine: Combine
    init: Expr
    anchored: Anchored


def read_window(program: Program) -> Window | None:
    """The program as a sliding window, None if it is none."""
    anchored = read_anchored(program)
    if anchored is None:
        return None
    anchor, combine = anchored.anchor, anchored.combine
    stage = flatten_stage(anchor.map_value(combine.term), anchored.flat)
    if (
        len(anchor.spatial) < 3
        or len(anchor.reduced) < 2
        or len(stage.spatial) < 2
        or not stage.reduced
        or stage.init is None
    ):
        return None
    *rows, column, channels = stage.spatial
    *outer, taps = stage.reduced
    inside, term = _without_padding(stage.value, combine, stage.init)
    if (
        term is None
        or as_int(channels.extent) is None
        or as_int(taps.extent) is None
        or not _in_vectors(anchored, term, channels)
    ):
        return None
    along = [uses(condition, column.var) or uses(condition, taps.var) for condition in inside]
    column_inside = tuple(compress(inside, along))
    row_inside = tuple(compress(inside, map(not_, along)))
    others = {axis.var for axis in (*rows, *outer, channels)}
    if any(uses(condition, var) for condition in column_inside for var in others):
        return None
    bounds = _bounds(column_inside, column, taps)
    if bounds is None:
        return None
    plain = replace(combine, term=term)
    return Window(
        tuple(rows),
        column,
        channels,
        tuple(outer),
        taps,
        row_inside,
        column_inside,
        *bounds,
        plain,
        stage.init,
        anchored,
    )


def _without_padding(term: Expr, combine: Combine, init: Expr) -> tuple[list[Expr], Expr | None]:
    """The conditions under which a tap counts, and the term where they hold; None where padding
    changes the result.
    """
    choices = [node for node in nodes(term) if is_choice(node)]
    if not choices:
        return [], term
    condition, inside, outside = choices[0].args
    neutral = combine.identity(init, dtype_of(outside))
    if len(choices) > 1 or not tvm_ffi.structural_equal(outside, neutral):
        return [], None
    if term.same_as(choices[0]):
        return list(_conjuncts(condition)), inside
    scales = (
        combine.node is prim.Add
        and isinstance(term, prim.Mul)
        and any(side.same_as(choices[0]) for side in (term.a, term.b))
    )
    plain = rewrite(term, lambda node: inside if node.same_as(choices[0]) else None)
    return list(_conjuncts(condition)), plain if scales else None


def _conjuncts(condition: Expr) -> Iterator[Expr]:
    if isinstance(condition, prim.And):
        yield from _conjuncts(condition.a)
        yield from _conjuncts(condition.b)
    elif (
        isinstance(condition, tvm.ir.Call)
        and getattr(condition.op, "name", "") == "tirx.bitwise_and"
    ):
        for side in condition.args:
            yield from _conjuncts(side)
    elif as_int(condition) != 1:
        yield condition


def _in_vectors(anchored: Anchored, term: Expr, channels: Axis) -> bool:
    """Whether a tap and everything after it works on neighbouring channels at once."""
    last = anchored.anchor.spatial[-1].var.same_as(channels.var) and not is_short(channels)
    return last and vectorizable(term, channels.var) and anchored.epilogue.in_vectors(channels.var)


def _bounds(conditions: tuple[Expr, ...], column: Axis, taps: Axis) -> tuple[Expr, Expr] | None:
    """The first of the columns for which the conditions hold at every tap, and where they end."""
    first: Expr = const(0)
    last: Expr = column.extent
    for condition in conditions:
        limit = _limit(condition, column, taps)
        if limit is None:
            return None
        is_low, value = limit
        first, last = (
            (tirx.max(first, value), last) if is_low else (first, tirx.min(last, value + const(1)))
        )
    return tirx.min(first, column.extent), tirx.max(last, const(0))


def _limit(condition: Expr, column: Axis, taps: Axis) -> tuple[bool, Expr] | None:
    """(True, lowest) or (False, highest): the columns for which the condition holds at
    every tap.
    """
    sides = _slack(condition)
    if sides is None:
        return None
    parts = tvm.sym.detect_linear_equation(sides, [column.var, taps.var])
    if len(parts) != 3:
        return None
    step, reach, rest = as_int(parts[0]), as_int(parts[1]), parts[2]
    extent = as_int(taps.extent)
    if not step or reach is None or extent is None:
        return None
    margin = rest + const(min(0, reach * (extent - 1)))
    simplify = tvm.sym.Analyzer().simplify
    if step > 0:
        return True, simplify(tirx.ceildiv(-margin, const(step)))
    return False, simplify(tirx.floordiv(margin, const(-step)))


def _slack(condition: Expr) -> Expr | None:
    """An integer that is at least 0 exactly where the comparison holds."""
    if isinstance(condition, prim.LE):
        return condition.b - condition.a
    if isinstance(condition, prim.LT):
        return condition.b - condition.a - const(1)
    if isinstance(condition, prim.GE):
        return condition.a - condition.b
    if isinstance(condition, prim.GT):
        return condition.a - condition.b - const(1)
    return None


def emit_window(window: Window, unit: VectorUnit) -> Stmt:
    """The kernel."""
    first, last = tirx.Var("first", "int64"), tirx.Var("last", "int64")
    parts = _parts(window, unit)

    def row(at: Table, part: Expr) -> Stmt:
        return _row(window, unit, first, last, at, part, parts)

    whole = share_parts(window.rows, const(parts), worth_sharing(window.anchored.anchor), row)
    bounds = [tirx.Bind(first, window.first), tirx.Bind(last, tirx.max(window.last, window.first))]
    return seq(*window.anchored.flat.prelude, *bounds, whole)


def _parts(window: Window, unit: VectorUnit) -> int:
    """Into how many tasks to cut the channels of a row: an image of one row has no other rows to
    share out.
    """
    channels, lanes = fixed(window.channels.extent), unit.lanes(32)
    return (
        1
        if len(window.rows) > 1
        else max(parts for parts in range(1, 9) if channels % (parts * lanes) == 0 or parts == 1)
    )


def _row(
    window: Window, unit: VectorUnit, first: Expr, last: Expr, at: Table, part: Expr, parts: int
) -> Stmt:
    together = COLUMNS * (
        2 if fixed(window.taps.extent) >= MANY_TAPS and unit.registers >= 16 else 1
    )
    size = fixed(window.channels.extent) // parts

    def some(start: Expr, count: int, guard: bool) -> Stmt:
        return _columns(
            window, unit, {**at, window.column.var: start}, count, guard, part * const(size), size
        )

    def one(start: Expr, guard: bool) -> Callable[[Expr], Stmt]:
        return lambda i: some(start + i, 1, guard)

    many = (last - first) // const(together)
    rest = first + many * const(together)
    return seq(
        serial(first, one(const(0), True), "column") if window.column_inside else None,
        serial(many, lambda i: some(first + i * const(together), together, False), "columns"),
        serial(last - rest, one(rest, False), "column"),
        serial(window.column.extent - last, one(last, True), "column")
        if window.column_inside
        else None,
    )


def _columns(
    window: Window, unit: VectorUnit, at: Table, count: int, guard: bool, channel: Expr, size: int
) -> Stmt:
    """`count` neighbouring columns, over `size` channels; `at` says the first column."""
    lanes = lanes_for(window.anchored.anchor, unit)

    def columns(x: Expr) -> Stmt:
        here = {**at, window.column.var: x}
        return blocks(
            const(size),
            lanes,
            lambda base, width: _block(window, here, count, guard, channel + base, width),
        )

    return bind("x", at[window.column.var], columns)


def _block(window: Window, at: Table, count: int, guard: bool, base: Expr, width: int) -> Stmt:
    sums, allocation = allocate([count, width], dtype_of(window.init), "sums")

    def each(make: Callable[[int, Expr, Table], Stmt], table: Table) -> Stmt:
        def one(i: int, lane: Expr) -> Stmt:
            column = at[window.column.var] + const(i)
            return make(
                i, lane, {**table, window.column.var: column, window.channels.var: base + lane}
            )

        return tile(count, width, width, one)

    def step(i: int, lane: Expr, table: Table) -> Stmt:
        return window.combine.into(sums, table, const(i), lane)

    def tap(table: Table) -> Stmt:
        body = each(step, table)
        return when(_all(window.column_inside, table), body) if guard else body

    def line(table: Table) -> Stmt:
        return when(_all(window.row_inside, table), nest((window.taps,), tap, table))

    def write(i: int, lane: Expr, table: Table) -> Stmt:
        return window.anchored.epilogue.write(load(sums, [const(i), lane]), table)

    clear = each(
        lambda i, lane, table: store(sums, substitute(window.init, table), const(i), lane), at
    )
    return seq(allocation, clear, nest(window.outer, line, at), each(write, at))


def _all(conditions: tuple[Expr, ...], table: Table) -> Expr:
    return (
        tirx.all(*(substitute(condition, table) for condition in conditions))
        if conditions
        else tirx.IntImm("bool", 1)
    )

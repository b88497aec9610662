"""Sliding windows over images with channels last: depthwise convolution and pooling.

A task is one row of the result. Columns whose window lies wholly inside the image are computed several at a time, channels
in vectors, with no condition; those at the borders one by one, each tap behind its condition.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import tvm
import tvm_ffi
from tvm import tirx
from tvm.ir.prim import expr as prim

from compiler.passes.kernels.anchor import Anchored, read_anchored
from compiler.passes.kernels.generic import cost_of, guarded
from compiler.passes.kernels.nest import Combine, blocks, combine_of, lanes_for, nest, vectorizable
from compiler.passes.machine import Machine
from compiler.passes.tir.exprs import Expr, as_int, const, dtype_of, is_choice, load, nodes, rewrite, substitute, uses
from compiler.passes.tir.flat import flatten_stage
from compiler.passes.tir.loops import Stmt, allocate, bind, bind_all, product, seq, serial, store, unfuse, vectorized, when
from compiler.passes.tir.stages import Axis, Program, Stage

COLUMNS = 4
"""Columns computed together: each weight that is loaded serves so many sums."""
MANY_TAPS = 8
"""Taps along a row from which on twice as many columns are."""

Table = dict[Any, Expr]


@dataclass(frozen=True)
class Window:
    """A reduction over a window of `outer` and `taps` at (`rows`, `column`) for each of `channels`.

    term: what a tap adds where it is inside; row_inside: conditions on rows and `outer`; column_inside: on column and `taps`;
    first, last: the columns from `first` up to but not including `last` have all their taps inside.
    """

    rows: tuple[Axis, ...]
    column: Axis
    channels: Axis
    outer: tuple[Axis, ...]
    taps: Axis
    term: Expr
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
    combine = None if anchored is None else combine_of(anchored.anchor)
    if anchored is None or combine is None:
        return None
    stage = flatten_stage(anchored.anchor.map_value(combine.term), anchored.flat)
    anchor = anchored.anchor
    if len(anchor.spatial) < 3 or len(anchor.reduced) < 2 or len(stage.spatial) < 2 or not stage.reduced or stage.init is None:
        return None
    *rows, column, channels = stage.spatial
    *outer, taps = stage.reduced
    inside, term = _without_padding(stage.value, combine, stage.init)
    if term is None or as_int(channels.extent) is None or as_int(taps.extent) is None or not _in_vectors(anchored, term, channels):
        return None
    along = [uses(condition, column.var) or uses(condition, taps.var) for condition in inside]
    column_inside = tuple(condition for condition, of_column in zip(inside, along, strict=True) if of_column)
    others = {axis.var for axis in (*rows, *outer, channels)}
    if any(uses(condition, var) for condition in column_inside for var in others):
        return None
    limits = [_limit(condition, column, taps) for condition in column_inside]
    if any(limit is None for limit in limits):
        return None
    first: Expr = const(0)
    last: Expr = column.extent
    for limit in limits:
        assert limit is not None
        is_low, value = limit
        first, last = (tirx.max(first, value), last) if is_low else (first, tirx.min(last, value + const(1)))
    last = tirx.max(last, const(0))
    return Window(
        tuple(rows),
        column,
        channels,
        tuple(outer),
        taps,
        term,
        tuple(condition for condition, of_column in zip(inside, along, strict=True) if not of_column),
        column_inside,
        tirx.min(first, column.extent),
        last,
        Combine(combine.node, term),
        stage.init,
        anchored,
    )


def _without_padding(term: Expr, combine: Combine, init: Expr) -> tuple[list[Expr], Expr | None]:
    """The conditions under which a tap counts, and the term where they hold; None where padding changes the result."""
    choices = [node for node in nodes(term) if is_choice(node)]
    if not choices:
        return [], term
    condition, inside, outside = choices[0].args
    neutral = combine.identity(init, dtype_of(outside))
    if len(choices) > 1 or not tvm_ffi.structural_equal(outside, neutral):
        return [], None
    if term.same_as(choices[0]):
        return list(_conjuncts(condition)), inside
    scales = combine.node is prim.Add and isinstance(term, prim.Mul) and any(side.same_as(choices[0]) for side in (term.a, term.b))
    plain = rewrite(term, lambda node: inside if node.same_as(choices[0]) else None)
    return list(_conjuncts(condition)), plain if scales else None


def _conjuncts(condition: Expr) -> Iterator[Expr]:
    if isinstance(condition, prim.And):
        yield from _conjuncts(condition.a)
        yield from _conjuncts(condition.b)
    elif isinstance(condition, tvm.ir.Call) and getattr(condition.op, "name", "") == "tirx.bitwise_and":
        for side in condition.args:
            yield from _conjuncts(side)
    elif as_int(condition) != 1:
        yield condition


def _in_vectors(anchored: Anchored, term: Expr, channels: Axis) -> bool:
    """Whether a tap and everything after it works on neighbouring channels at once."""
    values = [term, *(part.value for part in anchored.parts)]
    places = [load(part.buffer, list(part.indices)) for part in anchored.parts]
    axis = anchored.anchor.spatial[-1]
    if not axis.var.same_as(channels.var) or (as_int(channels.extent) or 0) < 4:
        return False
    return all(vectorizable(value, channels.var) for value in (*values, *places)) and all(dtype_of(value) != "bool" for value in values)


def _limit(condition: Expr, column: Axis, taps: Axis) -> tuple[bool, Expr] | None:
    """(True, lowest) or (False, highest): the columns for which the condition holds at every tap."""
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


def emit_window(window: Window, machine: Machine) -> Stmt:
    """The kernel."""
    anchor = window.anchored.anchor

    first, last = tirx.Var("first", "int64"), tirx.Var("last", "int64")
    extents = [axis.extent for axis in window.rows]
    parts = _parts(window, machine)

    def task(index: Expr) -> Stmt:
        *row, part = unfuse(index, [*extents, const(parts)])
        return bind_all([axis.var for axis in window.rows], row, lambda at: _row(window, machine, first, last, at, part, parts))

    whole = guarded(product([*extents, const(parts)]), cost_of((anchor,)), task)
    bounds = [tirx.Bind(first, window.first), tirx.Bind(last, tirx.max(window.last, window.first))]
    return seq(*window.anchored.flat.prelude, *bounds, whole)


def _parts(window: Window, machine: Machine) -> int:
    """Into how many tasks to cut the channels of a row: an image of one row has no other rows to share out."""
    channels, lanes = as_int(window.channels.extent) or 1, machine.lanes(32)
    return 1 if len(window.rows) > 1 else max(parts for parts in range(1, 9) if channels % (parts * lanes) == 0 or parts == 1)


def _row(window: Window, machine: Machine, first: Expr, last: Expr, at: Table, part: Expr, parts: int) -> Stmt:
    together = COLUMNS * (2 if (as_int(window.taps.extent) or 0) >= MANY_TAPS and machine.registers >= 16 else 1)
    size = (as_int(window.channels.extent) or 1) // parts

    def some(start: Expr, count: int, guard: bool) -> Stmt:
        return _columns(window, machine, {**at, window.column.var: start}, count, guard, part * const(size), size)

    def one(start: Expr, guard: bool) -> Callable[[Expr], Stmt]:
        return lambda i: some(start + i, 1, guard)

    many = (last - first) // const(together)
    rest = first + many * const(together)
    return seq(
        serial(first, one(const(0), True), "column") if window.column_inside else None,
        serial(many, lambda i: some(first + i * const(together), together, False), "columns"),
        serial(last - rest, one(rest, False), "column"),
        serial(window.column.extent - last, one(last, True), "column") if window.column_inside else None,
    )


def _columns(window: Window, machine: Machine, at: Table, count: int, guard: bool, channel: Expr, size: int) -> Stmt:
    """`count` neighbouring columns, over `size` channels; `at` says the first column."""
    lanes = lanes_for(window.anchored.anchor, machine)
    start = at[window.column.var]
    return bind(
        "x",
        start,
        lambda x: blocks(
            const(size), lanes, lambda base, width: _block(window, {**at, window.column.var: x}, count, guard, channel + base, width)
        ),
    )


def _block(window: Window, at: Table, count: int, guard: bool, base: Expr, width: int) -> Stmt:
    dtype = dtype_of(window.init)
    sums, allocation = allocate([count, width], dtype, "sums")

    def each(make: Callable[[int, Expr, Table], Stmt], table: Table) -> Stmt:
        places = [{**table, window.column.var: at[window.column.var] + const(i)} for i in range(count)]

        def lane_of(i: int) -> Stmt:
            return vectorized(width, lambda lane: make(i, lane, {**places[i], window.channels.var: base + lane}))

        return seq(*(lane_of(i) for i in range(count)))

    def step(i: int, lane: Expr, table: Table) -> Stmt:
        return store(sums, window.combine.node(load(sums, [const(i), lane]), substitute(window.term, table)), const(i), lane)

    def tap(table: Table) -> Stmt:
        body = each(step, table)
        return when(_all(window.column_inside, table), body) if guard else body

    def line(table: Table) -> Stmt:
        return when(_all(window.row_inside, table), nest((window.taps,), tap, table))

    def write(i: int, lane: Expr, table: Table) -> Stmt:
        return seq(*(_write(window, part, load(sums, [const(i), lane]), table) for part in window.anchored.parts))

    clear = each(lambda i, lane, table: store(sums, substitute(window.init, table), const(i), lane), at)
    return seq(allocation, clear, nest(window.outer, line, at), each(write, at))


def _all(conditions: tuple[Expr, ...], table: Table) -> Expr:
    return tirx.all(*(substitute(condition, table) for condition in conditions)) if conditions else tirx.IntImm("bool", 1)


def _write(window: Window, part: Stage, total: Expr, table: Table) -> Stmt:
    def visit(node: Expr) -> Expr | None:
        if isinstance(node, tvm.ir.TensorLoad) and node.source.same_as(window.anchored.total):
            return total
        return table.get(node) if isinstance(node, tvm.ir.Var) else None

    return store(part.buffer, rewrite(part.value, visit), substitute(part.indices[0], table))

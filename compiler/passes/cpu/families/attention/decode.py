"""Attention of few queries of a head over many keys: the decode steps of a language model.

Keys and values are read from memory once: a task is the heads that share them by some hundred of
the columns. Its loops: scores (`scores`), a few keys by all heads; softmax of each head over the
task's columns alone; the values weighed for all heads. Meanwhile memory is prefetched: values while
scores are computed, and the next task's keys while values are weighed. Last, the partial results of
a head are scaled to the same greatest score and added up.

With a KV cache, any number of queries is accumulated in this order, so that a token's result does
not depend on the tokens that are computed with it. In a prefill, a task is some queries of the
heads by all keys, and queries are members of its groups as well as heads. Columns in front of the
first and behind the last visible one of a query are left out (`hidden`).
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from tvm import tirx

from compiler.passes.cpu.families.attention import plan
from compiler.passes.cpu.families.attention.groups import Group, group_of, prefetch_row
from compiler.passes.cpu.families.attention.hidden import emit_bound, emit_visible, mask_of
from compiler.passes.cpu.families.attention.match import Attention
from compiler.passes.cpu.families.attention.parts import Parts, emit_sum, width_of
from compiler.passes.cpu.families.attention.scales import scale_powers, store_value_scales
from compiler.passes.cpu.families.attention.scores import emit_scores, lanes_of
from compiler.passes.cpu.families.attention.softmax import Row, softmax_rows
from compiler.passes.cpu.shared import plan as shared_plan
from compiler.passes.cpu.shared.sharing import extents_of, share_positions
from compiler.targets.vector_unit import VectorUnit
from compiler.tir.building import (
    across,
    alloc,
    let,
    let_all_opaque,
    let_opaque,
    otherwise,
    serial,
    steps,
    store,
    tile,
    when,
)
from compiler.tir.exprs import Expr, Table, const, load, substitute
from compiler.tir.loops import PARALLEL_FLOPS, multiply_extents


def decode_limit(attention: Attention) -> int:
    """The largest number of queries per head for which decoding is faster than packing keys."""
    return plan.DECODE_QUERIES if group_of(attention).count == 1 else plan.SHARING_QUERIES


def emit_decode(attention: Attention, unit: VectorUnit) -> None:
    """Emit the attention of up to `decode_limit` queries per head; of more it is slower."""
    heads, m, n = (
        multiply_extents(extents_of(attention.batch)),
        attention.row.extent,
        attention.column.extent,
    )
    group = group_of(attention)
    count = let_opaque("parts", tirx.max(tirx.ceildiv(n, plan.DECODE_KEYS), 1))
    rows = tirx.max(heads * m, 1)
    # Memory of all tasks: results of one are read by another thread.
    parts = _alloc(attention, lambda position: _row_number(attention, position), rows, count)
    # Tasks are parts of groups: a single sequence has too few groups for all threads.
    work = heads * m * n * (2 * (attention.head_depth + attention.head_width))
    blocks = let_opaque("some", tirx.max(tirx.ceildiv(m, plan.DECODE_QUERIES), 1))
    for position, task in share_positions(group.batch, count * blocks, work >= plan.DECODE_FLOPS):
        first, part = (
            let_opaque("query", task % blocks * plan.DECODE_QUERIES),
            let_opaque("part", task // blocks),
        )
        queries = (first, let_opaque("queries", tirx.min(plan.DECODE_QUERIES, m - first)))
        _emit_part(attention, unit, group, let_all_opaque(position), queries, part, parts)
    adding = rows * count * attention.head_width
    for position, row in share_positions(attention.batch, m, adding >= shared_plan.PARALLEL_WORK):
        emit_sum(attention, unit, {**position, attention.row.var: row}, parts)


def emit_prefill(attention: Attention, unit: VectorUnit) -> None:
    """Emit the attention of any number of queries, accumulated in the order of `emit_decode`."""
    heads, m, n = (
        multiply_extents(extents_of(attention.batch)),
        attention.row.extent,
        attention.column.extent,
    )
    row, group = attention.row.var, group_of(attention)
    count = let_opaque("parts", tirx.max(tirx.ceildiv(n, plan.DECODE_KEYS), 1))
    work = heads * m * n * (2 * (attention.head_depth + attention.head_width))
    tasks = tirx.ceildiv(m, plan.PREFILL_QUERIES)
    for position, task in share_positions(group.batch, tasks, work >= PARALLEL_FLOPS):
        position, first = let_all_opaque(position), let_opaque("query", task * plan.PREFILL_QUERIES)
        queries = (first, let_opaque("queries", tirx.min(plan.PREFILL_QUERIES, m - first)))

        def number(here: Table, position: Table = position, first: Expr = first) -> Expr:
            """Number rows by the position of their head in its group, and their query."""
            head = group.head
            own = const(0) if head is None else here[head.var] - position[head.var] * group.count
            return own * plan.PREFILL_QUERIES + (here[row] - first)

        parts = _alloc(attention, number, const(group.count * plan.PREFILL_QUERIES), count)
        members = group.with_queries(attention.row, plan.MEMBERS)
        mask = mask_of(attention)
        bound = (
            None if mask is None else emit_bound(attention, unit, mask, group, position, queries)
        )
        visible = _visible_columns(attention, unit, members, position, queries, bound)
        with serial(count, "part") as part:
            _emit_part(attention, unit, members, position, queries, part, parts, visible)
        with serial(group.count, "head") as i, serial(queries[1], "row") as query:
            emit_sum(attention, unit, group.member({**position, row: first + query}, i), parts)


def _visible_columns(
    attention: Attention,
    unit: VectorUnit,
    group: Group,
    position: Table,
    queries: tuple[Expr, Expr],
    bound: Expr | None = None,
) -> Any:
    """Emit [first, end) of the visible columns for each step of `group.queries` queries, as
    int64[steps, 2]; None where no mask hides any. bound: as `emit_visible` takes it.
    """
    mask = mask_of(attention)
    if mask is None:
        return None
    visible = alloc([plan.PREFILL_QUERIES, 2], "int64", "seen")
    with serial(_ceildiv(queries[1], group.queries), "query") as query:
        here = {**position, attention.row.var: queries[0] + query * group.queries}
        for i, end in enumerate(emit_visible(attention, unit, mask, group, here, bound)):
            store(visible, end, query, i)
    return visible


def _alloc(attention: Attention, number: Callable[[Table], Expr], rows: Expr, count: Expr) -> Parts:
    """Allocate the partial results of `rows` rows by `count` parts."""
    return Parts(
        number,
        count,
        alloc([rows * count], "float32", "greatest", "global"),
        alloc([rows * count], "float32", "totals", "global"),
        alloc([rows * count * attention.head_width], "float32", "weighed", "global"),
        mask_of(attention) is not None,
    )


def _emit_part(
    attention: Attention,
    unit: VectorUnit,
    group: Group,
    position: Table,
    queries: tuple[Expr, Expr],
    part: Expr,
    parts: Parts,
    visible: Any = None,
) -> None:
    """Emit the partial results of the heads of a group and some of their queries, (first, count).

    visible: the result of `_visible_columns` over all columns; without it that of the part is
    computed.
    """
    first = let_opaque("first", part * plan.DECODE_KEYS)
    count = let_opaque("count", tirx.min(plan.DECODE_KEYS, attention.column.extent - first))
    last = let("last", attention.column.extent - 1 - first)
    shifted = _shift_columns(attention, first, count)
    start = first
    if visible is None:
        visible, start = _visible_columns(shifted, unit, group, position, queries), const(0)
    lanes = lanes_of(attention, unit)
    scores = alloc([group.count * plan.DECODE_KEYS], "float32", "scores", "global")
    scales = None
    if attention.value_scale is not None:
        scales = alloc([plan.DECODE_KEYS], "float32", "scales", "global")
        unread = alloc([1], "int32", "unread")
        store(unread, 1, 0)
    # The first query loads the part's keys and values into L2, where the next ones find them.
    with serial(_ceildiv(queries[1], group.queries), "query") as query:
        here = {**position, attention.row.var: queries[0] + query * group.queries}
        hidden, shown = const(0), shifted
        if visible is not None:
            hidden, shown = _select_visible(
                shifted, unit, [load(visible, [query, i]) - start for i in (0, 1)]
            )
        with serial(tirx.ceildiv(shown.column.extent, lanes), "block") as block:
            emit_scores(shown, unit, group, here, block * lanes, scores, plan.DECODE_KEYS)
        with when(visible is None or shown.column.extent > 0):
            if scales is not None:
                # Values were prefetched while the first query's scores were computed.
                with when(load(unread, [0]) != 0):
                    store_value_scales(shifted, unit, group.member(here, 0), scales)
                    store(unread, 0, 0)
            hidden_scales = None if scales is None else (scales, hidden)
            _emit_rows(shown, unit, group, here, scores, hidden_scales, part, parts, last - hidden)
        with otherwise(), serial(group.count) as i:
            index = parts.number(group.member(here, i)) * parts.count + part
            store(parts.greatest, float("-inf"), index)


def _select_visible(
    attention: Attention, unit: VectorUnit, visible: list[Expr]
) -> tuple[Expr, Attention]:
    """The first of the `visible` columns, [start, end), and the attention over these alone.

    The first is rounded down to whole vectors, since each lane adds up the powers of its columns.
    """
    (start, end), count, lanes = visible, attention.column.extent, unit.lanes(32)
    hidden = let_opaque("hidden", tirx.min(tirx.max(start, 0), count) // lanes * lanes)
    shown = let_opaque("shown", tirx.max(tirx.min(end, count) - hidden, 0))
    return hidden, _shift_columns(attention, hidden, shown)


def _emit_rows(
    attention: Attention,
    unit: VectorUnit,
    group: Group,
    position: Table,
    scores: Any,
    scales: tuple[Any, Expr] | None,
    part: Expr,
    parts: Parts,
    last: Expr,
) -> None:
    """Emit the partial results of the heads of a group from their scores. scales: of the values,
    and the index of the first column's; last: as `_weigh_values` takes it.
    """
    for begin, size in group.tiles(plan.MEMBERS):
        rows = []
        for i in range(begin, begin + size):
            member = group.member(position, i)
            index = let("index", parts.number(member) * parts.count + part)
            rows.append(Row(member, const(i * plan.DECODE_KEYS), unit.lanes(32), index))
        softmax_rows(attention, unit, rows, scores, parts.totals, parts.greatest)
    if scales is not None:
        with serial(group.count) as i:
            scale_powers(attention, unit, scores, i * plan.DECODE_KEYS, *scales)
    vectors = -(-width_of(attention, unit) // unit.lanes(32))
    # Beside the accumulators, registers hold one row of values and the power in all lanes.
    for heads in group.tiles((unit.registers - vectors - 1) // vectors):
        _weigh_values(attention, unit, group, position, heads, scores, part, parts, last)


def _shift_columns(attention: Attention, first: Expr, count: Expr) -> Attention:
    """The attention over `count` columns from `first` on, which are renumbered from 0."""
    column = attention.column
    table = {column.var: column.var + first}
    return replace(
        attention,
        column=replace(column, extent=count),
        key=substitute(attention.key, table),
        value=substitute(attention.value, table),
        key_scale=_move_scale(attention.key_scale, table),
        value_scale=_move_scale(attention.value_scale, table),
        changed=substitute(attention.changed, table),
    )


def _move_scale(scale: Expr | None, table: Table) -> Expr | None:
    return None if scale is None else substitute(scale, table)


def _ceildiv(count: Expr, size: int) -> Expr:
    return count if size == 1 else tirx.ceildiv(count, size)


def _row_number(attention: Attention, position: Table) -> Expr:
    """The number of a query among those of all heads."""
    number: Expr = const(0)
    for axis in (*attention.batch, attention.row):
        number = number * axis.extent + position[axis.var]
    return number


def _weigh_values(
    attention: Attention,
    unit: VectorUnit,
    group: Group,
    position: Table,
    heads: tuple[int, int],
    scores: Any,
    part: Expr,
    parts: Parts,
    last: Expr,
) -> None:
    """Emit the values weighed by the powers of some heads, (first, count). last: the index of the
    last of all columns, counted from the first of these.
    """
    first, rows = heads
    width = width_of(attention, unit)
    lanes = min(width, unit.lanes(32))
    here = group.member(position, 0)
    starts = [
        let(f"start{i}", (parts.number(group.member(position, first + i)) * parts.count + part))
        for i in range(rows)
    ]
    with serial(attention.head_width // width, "columns") as block:
        acc = alloc([rows, width], "float32", "acc")
        for i, lane in tile(rows, width, lanes):
            store(acc, 0, i, lane)
        # A row of values is loaded once and multiplied for all heads before the next one.
        for k in steps(attention.column.extent, unit.unroll):
            if first == 0:
                key = {**here, attention.column.var: tirx.min(k + plan.DECODE_KEYS, last)}
                prefetch_row(attention.key, key, attention.depth.var, (block * width, width))
            value = alloc([width], "float32", "value")
            for lane in across(width, lanes):
                element = {**here, attention.width.var: block * width + lane}
                store(
                    value, substitute(attention.value, {**element, attention.column.var: k}), lane
                )
            for i, lane in tile(rows, width, lanes):
                power = load(scores, [(first + i) * plan.DECODE_KEYS + k])
                store(acc, load(acc, [i, lane]) + power * load(value, [lane]), i, lane)
        for i, lane in tile(rows, width, lanes):
            to = starts[i] * attention.head_width + block * width + lane
            store(parts.weighed, load(acc, [i, lane]), to)

"""Attention of few queries of a head over many keys, as when text is decoded.

Keys and values are read from memory once: a task is the heads that share them by some hundred of
the columns. Its loops: scores (`scores`), a few keys by all heads; softmax of each head over the
task's columns alone; the values weighed for all heads. Meanwhile memory is read on: values while
scores are computed, and the next task's keys while values are weighed. Last, the parts of a head
are brought to one greatest score and added up.

Queries of language models with caches are summed up in this order however many there are, so that
what a token becomes does not depend on which tokens are computed with it. Where they are not few, a
task is some queries of the heads by all keys, and members of its groups are queries as well.
Columns in front of the first and behind the last that a mask lets a query see are left out
(`hidden`).
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from tvm import tirx

from compiler.passes.cpu.families.attention.groups import Group, group_of, prefetch_row
from compiler.passes.cpu.families.attention.hidden import emit_bound, emit_seen, mask_of
from compiler.passes.cpu.families.attention.match import Attention
from compiler.passes.cpu.families.attention.parts import Parts, emit_sum, width_of
from compiler.passes.cpu.families.attention.scales import scale_powers, store_value_scales
from compiler.passes.cpu.families.attention.scores import emit_scores, lanes_of
from compiler.passes.cpu.families.attention.softmax import Row, softmax_rows
from compiler.passes.cpu.shared.sharing import PARALLEL_WORK, extents_of, share_positions
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

COLUMNS = 256
"""Keys of a task: with their values, of 64 elements each, half of a small L2."""

QUERIES = 8
"""Queries of a task at most, and of a head that shares its keys with no other for which `emit_few`
is faster than laying its keys out in panels.
"""

SHARING_QUERIES = 32
"""Queries of heads that share keys, of which the same holds."""

MEMBERS = 6
"""Rows of scores, of queries and of heads, whose softmax is computed together, and that values are
multiplied by together.
"""

TASK_QUERIES = 24
"""Queries of a task where they are not few, a multiple of those that are members of a group."""


WORTH_SHARING = PARALLEL_FLOPS // 4
"""Operations of few queries that are worth other threads: these wait for keys and values, and are a
quarter as fast as those of many.
"""


def few(attention: Attention) -> int:
    """Of how many queries a head has few: beyond, laying keys out in panels pays."""
    return QUERIES if group_of(attention).count == 1 else SHARING_QUERIES


def emit_few(attention: Attention, unit: VectorUnit) -> None:
    """Emit the attention of `few` queries of each head; of any number, but slower."""
    heads, m, n = (
        multiply_extents(extents_of(attention.batch)),
        attention.row.extent,
        attention.column.extent,
    )
    group = group_of(attention)
    count = let_opaque("parts", tirx.max(tirx.ceildiv(n, COLUMNS), 1))
    rows = tirx.max(heads * m, 1)
    # Memory of all tasks: what one of them leaves is read by another thread.
    parts = _parts(attention, lambda place: _row(attention, place), rows, count)
    # By parts as well as by groups: a single sequence has few groups, and all threads have to read.
    work = heads * m * n * (2 * (attention.head_depth + attention.head_width))
    some = let_opaque("some", tirx.max(tirx.ceildiv(m, QUERIES), 1))
    for at, task in share_positions(group.batch, count * some, work >= WORTH_SHARING):
        first, part = let_opaque("query", task % some * QUERIES), let_opaque("part", task // some)
        queries = (first, let_opaque("queries", tirx.min(QUERIES, m - first)))
        _emit_part(attention, unit, group, let_all_opaque(at), queries, part, parts)
    adding = rows * count * attention.head_width
    for at, row in share_positions(attention.batch, m, adding >= PARALLEL_WORK):
        emit_sum(attention, unit, {**at, attention.row.var: row}, parts)


def emit_many(attention: Attention, unit: VectorUnit) -> None:
    """Emit the attention of any number of queries, each in the same order as `emit_few`."""
    heads, m, n = (
        multiply_extents(extents_of(attention.batch)),
        attention.row.extent,
        attention.column.extent,
    )
    row, group = attention.row.var, group_of(attention)
    count = let_opaque("parts", tirx.max(tirx.ceildiv(n, COLUMNS), 1))
    work = heads * m * n * (2 * (attention.head_depth + attention.head_width))
    tasks = tirx.ceildiv(m, TASK_QUERIES)
    for at, task in share_positions(group.batch, tasks, work >= PARALLEL_FLOPS):
        at, first = let_all_opaque(at), let_opaque("query", task * TASK_QUERIES)
        queries = (first, let_opaque("queries", tirx.min(TASK_QUERIES, m - first)))

        def number(place: Table, at: Table = at, first: Expr = first) -> Expr:
            """By the head's place in its group."""
            head = group.head
            own = const(0) if head is None else place[head.var] - at[head.var] * group.count
            return own * TASK_QUERIES + (place[row] - first)

        parts = _parts(attention, number, const(group.count * TASK_QUERIES), count)
        members = group.with_queries(attention.row, MEMBERS)
        mask = mask_of(attention)
        bound = None if mask is None else emit_bound(attention, unit, mask, group, at, queries)
        seen = _columns_seen(attention, unit, members, at, queries, bound)
        with serial(count, "part") as part:
            _emit_part(attention, unit, members, at, queries, part, parts, seen)
        with serial(group.count, "head") as i, serial(queries[1], "row") as query:
            emit_sum(attention, unit, group.at({**at, row: first + query}, i), parts)


def _columns_seen(
    attention: Attention,
    unit: VectorUnit,
    group: Group,
    at: Table,
    queries: tuple[Expr, Expr],
    bound: Expr | None = None,
) -> Any:
    """Emit, for each member of the group, the first column that its queries see and the end of
    those that they see, as int64[members, 2]; None where no mask hides any. bound: as `emit_seen`
    takes it.
    """
    mask = mask_of(attention)
    if mask is None:
        return None
    seen = alloc([TASK_QUERIES, 2], "int64", "seen")
    with serial(_ceildiv(queries[1], group.queries), "query") as query:
        place = {**at, attention.row.var: queries[0] + query * group.queries}
        for i, end in enumerate(emit_seen(attention, unit, mask, group, place, bound)):
            store(seen, end, query, i)
    return seen


def _parts(attention: Attention, number: Callable[[Table], Expr], rows: Expr, count: Expr) -> Parts:
    """Scratch memory for `rows` rows by `count` parts."""
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
    at: Table,
    queries: tuple[Expr, Expr],
    part: Expr,
    parts: Parts,
    seen: Any = None,
) -> None:
    """The columns of a part for the heads of a group and some of their queries, (first, count).

    seen: as `_columns_seen` gives it; without it the part's columns alone are looked at.
    """
    first = let_opaque("first", part * COLUMNS)
    count = let_opaque("count", tirx.min(COLUMNS, attention.column.extent - first))
    last = let("last", attention.column.extent - 1 - first)
    shifted = _shifted(attention, first, count)
    before = first
    if seen is None:
        seen, before = _columns_seen(shifted, unit, group, at, queries), const(0)
    lanes = lanes_of(attention, unit)
    scores = alloc([group.count * COLUMNS], "float32", "scores", "global")
    scales = None
    if attention.value_scale is not None:
        scales = alloc([COLUMNS], "float32", "scales", "global")
        unread = alloc([1], "int32", "unread")
        store(unread, 1, 0)
    # A second query finds the part's keys and values in L2, where the first one left them.
    with serial(_ceildiv(queries[1], group.queries), "query") as query:
        place = {**at, attention.row.var: queries[0] + query * group.queries}
        hidden, some = const(0), shifted
        if seen is not None:
            hidden, some = _shown(shifted, unit, [load(seen, [query, i]) - before for i in (0, 1)])
        with serial(tirx.ceildiv(some.column.extent, lanes), "block") as block:
            emit_scores(some, unit, group, place, block * lanes, scores, COLUMNS)
        with when(seen is None or some.column.extent > 0):
            if scales is not None:
                # Values were prefetched while the first query's scores were computed.
                with when(load(unread, [0]) != 0):
                    store_value_scales(shifted, unit, group.at(place, 0), scales)
                    store(unread, 0, 0)
            held = None if scales is None else (scales, hidden)
            _emit_rows(some, unit, group, place, scores, held, part, parts, last - hidden)
        with otherwise(), serial(group.count) as i:
            index = parts.number(group.at(place, i)) * parts.count + part
            store(parts.greatest, float("-inf"), index)


def _shown(attention: Attention, unit: VectorUnit, seen: list[Expr]) -> tuple[Expr, Attention]:
    """The first of the columns that are seen, [first, end], and the attention over these alone.

    The first is rounded down to whole vectors, as each lane adds up the powers of certain columns.
    """
    (start, end), count, lanes = seen, attention.column.extent, unit.lanes(32)
    hidden = let_opaque("hidden", tirx.min(tirx.max(start, 0), count) // lanes * lanes)
    shown = let_opaque("shown", tirx.max(tirx.min(end, count) - hidden, 0))
    return hidden, _shifted(attention, hidden, shown)


def _emit_rows(
    attention: Attention,
    unit: VectorUnit,
    group: Group,
    place: Table,
    scores: Any,
    scales: tuple[Any, Expr] | None,
    part: Expr,
    parts: Parts,
    last: Expr,
) -> None:
    """The columns of a part for the heads of a group, given their scores; scales: those of values,
    and which is that of the first column; last: as `_weigh` takes it.
    """
    for begin, size in group.tiles(MEMBERS):
        rows = []
        for i in range(begin, begin + size):
            here = group.at(place, i)
            index = let("index", parts.number(here) * parts.count + part)
            rows.append(Row(here, const(i * COLUMNS), unit.lanes(32), index))
        softmax_rows(attention, unit, rows, scores, parts.totals, parts.greatest)
    if scales is not None:
        with serial(group.count) as i:
            scale_powers(attention, unit, scores, i * COLUMNS, *scales)
    vectors = -(-width_of(attention, unit) // unit.lanes(32))
    # Beside the accumulators, registers hold one row of values and the power in all lanes.
    for heads in group.tiles((unit.registers - vectors - 1) // vectors):
        _weigh(attention, unit, group, place, heads, scores, part, parts, last)


def _shifted(attention: Attention, first: Expr, count: Expr) -> Attention:
    """The attention over `count` columns from `first` on, as columns from 0 on."""
    column = attention.column
    moved = {column.var: column.var + first}
    return replace(
        attention,
        column=replace(column, extent=count),
        key=substitute(attention.key, moved),
        value=substitute(attention.value, moved),
        key_scale=_moved(attention.key_scale, moved),
        value_scale=_moved(attention.value_scale, moved),
        changed=substitute(attention.changed, moved),
    )


def _moved(scale: Expr | None, table: Table) -> Expr | None:
    return None if scale is None else substitute(scale, table)


def _ceildiv(count: Expr, size: int) -> Expr:
    return count if size == 1 else tirx.ceildiv(count, size)


def _row(attention: Attention, at: Table) -> Expr:
    """The number of a head's query among all."""
    number: Expr = const(0)
    for axis in (*attention.batch, attention.row):
        number = number * axis.extent + at[axis.var]
    return number


def _weigh(
    attention: Attention,
    unit: VectorUnit,
    group: Group,
    place: Table,
    heads: tuple[int, int],
    scores: Any,
    part: Expr,
    parts: Parts,
    last: Expr,
) -> None:
    """The values of the columns weighed by the powers of some heads; last: the last one of all
    columns, counted from the first of these.
    """
    first, rows = heads
    width = width_of(attention, unit)
    lanes = min(width, unit.lanes(32))
    here = group.at(place, 0)
    starts = [
        let(f"start{i}", (parts.number(group.at(place, first + i)) * parts.count + part))
        for i in range(rows)
    ]
    with serial(attention.head_width // width, "columns") as block:
        acc = alloc([rows, width], "float32", "acc")
        for i, lane in tile(rows, width, lanes):
            store(acc, 0, i, lane)
        # A row of values is loaded once and multiplied for all heads before the next one.
        for k in steps(attention.column.extent, unit.unroll):
            if first == 0:
                key = {**here, attention.column.var: tirx.min(k + COLUMNS, last)}
                prefetch_row(attention.key, key, attention.depth.var, (block * width, width))
            value = alloc([width], "float32", "value")
            for lane in across(width, lanes):
                at = {**here, attention.width.var: block * width + lane}
                store(value, substitute(attention.value, {**at, attention.column.var: k}), lane)
            for i, lane in tile(rows, width, lanes):
                power = load(scores, [(first + i) * COLUMNS + k])
                store(acc, load(acc, [i, lane]) + power * load(value, [lane]), i, lane)
        for i, lane in tile(rows, width, lanes):
            to = starts[i] * attention.head_width + block * width + lane
            store(parts.weighed, load(acc, [i, lane]), to)

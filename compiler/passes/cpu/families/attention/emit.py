"""The attention kernel: softmax(changed(query @ key)) @ value, with the scores kept in the cache.

A task is a head, or some of its queries where heads are few. It lays the keys of the head out in
panels once. Loop order then: 6 or 12 queries at a time; their scores by all keys, panel by panel;
softmax of each row; their results, a block of columns at a time, over all values.

In both matmuls registers hold the accumulators of these queries by one or two vectors. Their scores
are in L1 or L2, the keys and values of a head in L2: for 512 keys of 64 elements 128 KiB
each. Up to two queries of a task read the keys straight from memory; few queries of a head, as when
text is decoded, are `decode`'s, and so is any number of them where sums have one order.

Values are read where they lie, but for those whose rows end with no whole vector (`rows`): these
are laid out once for a task, too.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import tvm_ffi
from tvm import tirx

from compiler.passes.cpu.families.attention.decode import emit_few, emit_many, few
from compiler.passes.cpu.families.attention.match import Attention
from compiler.passes.cpu.families.attention.panels import pack_keys, panel_of
from compiler.passes.cpu.families.attention.rows import (
    is_filled_up,
    is_ragged,
    last_of,
    pieces,
    strip_of,
)
from compiler.passes.cpu.families.attention.softmax import Row, softmax_rows
from compiler.passes.cpu.shared.register_tile import least, rows_for
from compiler.passes.cpu.shared.sharing import bind_extents, extents_of, share_positions
from compiler.targets.vector_unit import VectorUnit
from compiler.tir.building import (
    across,
    alloc,
    blocks,
    emit,
    fresh,
    let,
    let_all_opaque,
    let_opaque,
    otherwise,
    serial,
    statements,
    steps,
    store,
    tile,
    vectorize,
    when,
)
from compiler.tir.exprs import Expr, Table, const, load, substitute
from compiler.tir.loops import PARALLEL_FLOPS, Stmt, multiply_extents

ROWS = 6
"""Queries whose scores and results are computed together, where registers hold them."""

TASK_ROWS = 128
"""Queries of one task where there are few heads to share out, about: laying keys out takes as long
as five queries do.
"""

MANY_HEADS = 8
"""Heads from which on each is one task: its keys are laid out once."""

BESIDE_PRODUCTS = 1 << 16
"""Operations that take as long as what a head does beside its products, such as laying out keys:
half a microsecond on Zen 4. Counted with the products, they take MiniLM to 0.97 of the time at 7
tokens, since its heads are shared out.
"""


def sizes_of(unit: VectorUnit) -> tuple[int, ...]:
    """Queries whose scores and results are computed together, as many as are left, rounded up: 4 in
    WebAssembly, with AVX-512 6 or 12, which read keys and values from L2 half as often.
    """
    if not unit.scheduled:
        return (rows_for(unit, 2),)
    return (ROWS, 2 * ROWS) if unit.memory_bound else (ROWS,)


def begun(attention: Attention) -> Attention:
    """Emit what the attention's extents are computed from; gives it with extents that are."""
    for stmt in attention.prelude:
        emit(stmt)
    axes = (*attention.batch, attention.row, attention.column)
    *batch, row, column = bind_extents(axes)
    return replace(attention, batch=tuple(batch), row=row, column=column)


def emit_attention(attention: Attention, unit: VectorUnit) -> Stmt:
    """The kernel: tasks, each all queries of a head or some of them."""
    with statements() as body:
        known = begun(attention)
        # Few queries beside as many keys, of the same text, are no decoding.
        alone = tvm_ffi.structural_equal(attention.row.extent, attention.column.extent)
        # Of ragged rows `decode` would make narrow vectors.
        ragged = is_ragged(known.head_depth) or is_ragged(known.head_width)
        with when(False if alone or ragged else known.row.extent <= few(known)):
            emit_few(known, unit)
        with otherwise():
            if known.steady:
                emit_many(known, unit)
            else:
                _emit_heads(known, unit)
    return body.stmt


def _emit_heads(attention: Attention, unit: VectorUnit) -> None:
    """Emit tasks with panels of keys."""
    heads, m = multiply_extents(extents_of(attention.batch)), attention.row.extent
    each = rows_of_task(heads, m, sizes_of(unit)[-1])
    worth = worth_sharing(attention, 2)
    for at, part in share_positions(attention.batch, tirx.ceildiv(m, each), worth):
        first = let_opaque("first", part * each)
        count = let_opaque("count", tirx.min(each, m - first))
        # LLVM does not move divisions by what might be 0 out of loops that might not be entered.
        _emit_head(attention, unit, let_all_opaque(at), first, count)


def worth_sharing(attention: Attention, each: int) -> Expr:
    """Whether the heads are worth other threads, where a product takes as long as `each`
    operations.
    """
    heads = multiply_extents(extents_of(attention.batch))
    places = attention.row.extent * attention.column.extent
    products = places * (each * (attention.head_depth + attention.head_width))
    return heads * (products + BESIDE_PRODUCTS) >= PARALLEL_FLOPS // 2


def rows_of_task(heads: Expr, m: Expr, together: int) -> Expr:
    """How many of the `m` queries of a head are a task: about equal parts, in whole blocks of
    `together`. Never 0, as it divides: no queries are no parts of one.
    """
    parts = let_opaque("parts", tirx.max(tirx.ceildiv(m, TASK_ROWS), 1))
    part = tirx.ceildiv(tirx.ceildiv(m, parts), together) * together
    return let_opaque("each", tirx.max(tirx.Select(heads >= MANY_HEADS, m, part), 1))


@dataclass(frozen=True)
class _Head:
    """One task: queries of the head at `at`.

    scratch: the keys in panels, of `padded` keys, and behind them, from `scores` on, the scores
    [vector of keys, query, lane] of the queries that are computed together: one buffer, as TVM's
    pool takes longer to free the first of two. Scores of a query by neighbouring vectors of keys
    lie as many vectors apart as there are queries, so that one address reaches all queries. From
    `values` on there are the values, where their rows are filled up.
    """

    attention: Attention
    unit: VectorUnit
    at: Table
    padded: Expr
    scratch: Any
    scores: Expr
    values: Expr

    def query(self, index: Expr) -> Table:
        """The place of a query; past the last one it is the last one again, computed and written
        twice, which is cheaper than a mask in every loop.
        """
        row = self.attention.row
        return {**self.at, row.var: fresh("row", tirx.min(index, row.extent - 1))}


def _emit_head(attention: Attention, unit: VectorUnit, at: Table, first: Expr, count: Expr) -> None:
    """The results of `count` queries of the head `at`, from query `first` on."""
    panel = panel_of(unit)
    padded = let_opaque("padded", tirx.ceildiv(attention.column.extent, panel) * panel)
    sizes, depth, values = sizes_of(unit), attention.head_depth, _room_for_values(attention, unit)
    # Each task has its own, reused from one block of queries to the next, so it stays in the cache.
    # Up to two queries read each key too rarely to pay for laying them out.
    with when(count > 2):
        laid = padded * (depth + sizes[-1])
        scratch = alloc([laid + values], "float32", "scratch", "global")
        head = _Head(attention, unit, at, padded, scratch, padded * depth, laid)
        pack_keys(attention, unit, at, scratch)
        _pack_values(head)
        with serial(tirx.ceildiv(count, sizes[-1]), "rows") as block:
            row = let("row", first + block * sizes[-1])
            for rows in least(sizes, first + count - row):
                _scores_of_all(head, row, rows)
                _emit_rows(head, row, rows)
    with otherwise():
        scratch = alloc([padded + values], "float32", "scratch", "global")
        head = _Head(attention, unit, at, padded, scratch, const(0), padded)
        _pack_values(head)
        with serial(count, "rows") as block:
            row = let("row", first + block)
            _scores_of_one(attention, unit, head.query(row), scratch)
            _emit_rows(head, row, 1)


def _emit_rows(head: _Head, first: Expr, rows: int) -> None:
    """The results of `rows` queries from `first` on, given their scores."""
    lanes = head.unit.lanes(32)
    totals = alloc([rows], "float32", "totals")
    together = min(rows, ROWS)
    with serial(rows // together, "group") as group:
        found = [
            Row(head.query(first + i), head.scores + i * lanes, rows * lanes, i)
            for i in (group * together + j for j in range(together))
        ]
        softmax_rows(head.attention, head.unit, found, head.scratch, totals)
    _weigh_values(head, first, rows, totals)


def _scores_of_all(head: _Head, first: Expr, rows: int) -> None:
    """The scores of queries by all keys, and by the filling of the last panel."""
    attention, unit = head.attention, head.unit
    panel, lanes, depth = panel_of(unit), unit.lanes(32), attention.head_depth
    # Side by side, as one address reaches all of them.
    queries = alloc([rows * depth], "float32", "queries")
    with serial(rows, "i") as i:
        place = head.query(first + i)
        for start, width in blocks(depth, strip_of(depth, unit), "k"):
            with vectorize(width) as lane:
                query = substitute(attention.query, {**place, attention.depth.var: start + lane})
                store(queries, query, i * depth + (start + lane))
    with serial(tirx.ceildiv(attention.column.extent, panel), "panel") as p:
        acc = alloc([rows, panel], "float32", "acc")
        for i, lane in tile(rows, panel, lanes):
            store(acc, 0, i, lane)
        for k in steps(depth, unit.unroll):
            for i, lane in tile(rows, panel, lanes):
                key = load(head.scratch, [(p * depth + k) * panel + lane])
                query = load(queries, [i * depth + k])
                store(acc, load(acc, [i, lane]) + query * key, i, lane)
        for i in range(rows):
            for v in range(panel // lanes):
                begin = head.scores + ((p * (panel // lanes) + v) * rows + i) * lanes
                with vectorize(lanes) as lane:
                    store(head.scratch, load(acc, [i, v * lanes + lane]), begin + lane)


def _scores_of_one(attention: Attention, unit: VectorUnit, place: Table, scores: Any) -> None:
    """scores[j] = query @ key j for one query, in vectors along the depth, without packed keys."""
    lanes = strip_of(attention.head_depth, unit)
    with serial(attention.column.extent, "column") as j:
        acc = alloc([lanes], "float32", "acc")
        with vectorize(lanes) as lane:
            store(acc, 0, lane)
        for start, width in blocks(attention.head_depth, lanes, "k"):
            with vectorize(width) as lane:
                depth = {attention.depth.var: start + lane}
                at = {**place, attention.column.var: j, **depth}
                term = substitute(attention.query, at) * substitute(attention.real_key, at)
                store(acc, load(acc, [lane]) + term, lane)
        # One query has no other rows to fill a register with: lanes hold parts of one sum instead.
        _halve(acc, lanes)
        store(scores, load(acc, [0]), j)


def _halve(acc: Any, lanes: int) -> None:
    """Emit the sum of all lanes into the first, half of them at a time: taken out one by one they
    are more additions than a key of 64 elements has products.
    """
    while lanes > 1:
        lanes //= 2
        with vectorize(lanes) as lane:
            store(acc, load(acc, [lane]) + load(acc, [lane + lanes]), lane)


def _room_for_values(attention: Attention, unit: VectorUnit) -> Expr:
    """Elements of the values of a head in scratch memory: none if they are read where they lie."""
    if not is_filled_up(attention.head_width, unit):
        return const(0)
    return attention.column.extent * sum(last_of(attention.head_width, unit))


def _pack_values(head: _Head) -> None:
    """Lay out the values of the head if their rows are filled up."""
    attention, unit, size = head.attention, head.unit, head.attention.head_width
    if not is_filled_up(size, unit):
        return
    last, room = last_of(size, unit)
    with serial(attention.column.extent, "column") as column:
        begin = let("begin", head.values + column * (last + room))
        for lane in across(room, min(room, unit.lanes(32))):
            store(head.scratch, 0, begin + (last + lane))
        for start, width in blocks(size, unit.lanes(32), "strip"):
            with vectorize(width) as lane:
                at = {**head.at, attention.column.var: column, attention.width.var: start + lane}
                store(head.scratch, substitute(attention.real_value, at), begin + (start + lane))


def _weigh_values(head: _Head, first: Expr, rows: int, totals: Any) -> None:
    """The results: the values weighed by the powers, over the sum of the powers."""
    attention, target = head.attention, head.attention.target
    places = [head.query(first + i) for i in range(rows)]
    for start, width, count in _blocks_of(attention.head_width, head.unit):
        lanes = min(width, head.unit.lanes(32))
        acc = alloc([rows, width], "float32", "acc")
        _weigh_columns(head, places[0], start, acc)
        for i, place in enumerate(places):
            for begin, some in pieces(count, lanes):
                with vectorize(some) as lane:
                    at = {**place, attention.width.var: start + (const(begin) + lane)}
                    # Here the sum of powers divides as many elements as a value has, not one for
                    # each key.
                    result = load(acc, [i, const(begin) + lane]) / load(totals, [i])
                    store(target.source, result, substitute(target.indices[0], at))


def _weigh_columns(head: _Head, place: Table, start: Expr, acc: Any) -> None:
    """acc[query, column] = the columns of the values from `start` on, weighed by each query's
    powers.
    """
    n, each = head.attention.column.extent, head.unit.lanes(32)
    rows, width = map(int, acc.shape)
    lanes = min(width, each)
    for i, lane in tile(rows, width, lanes):
        store(acc, 0, i, lane)

    def weigh(strip: Expr, k: Expr) -> None:
        for i, lane in tile(rows, width, lanes):
            value = _value(head, place, strip * each + k, start + lane)
            power = load(head.scratch, [head.scores + (strip * rows + i) * each + k])
            store(acc, load(acc, [i, lane]) + power * value, i, lane)

    full = n // each
    with serial(full, "strip") as strip:
        for k in steps(const(each), head.unit.unroll):
            weigh(strip, k)
    with serial(n - full * each, "k") as k:
        weigh(full, k)


def _blocks_of(size: int, unit: VectorUnit) -> Iterator[tuple[Expr, int, int]]:
    """(start, width, count) of the columns of values of `size` whose accumulators are in registers
    together: of `width` columns, `count` are not filling.
    """
    pair = 2 * unit.lanes(32)
    if not is_ragged(size):
        # Two vectors, one, or half of one.
        width = next(width for width in (pair, pair // 2, pair // 4) if size % width == 0)
        with serial(size // width, "columns") as block:
            yield block * width, width, width
        return
    last, room = last_of(size, unit)
    with serial(last // pair, "columns") as block:
        yield block * pair, pair, pair
    if room:
        yield const(last), room, size - last


def _value(head: _Head, place: Table, column: Expr, index: Expr) -> Expr:
    """An element of a value. It does not depend on the query, so any query's place will do."""
    attention = head.attention
    if is_filled_up(attention.head_width, head.unit):
        begin = head.values + column * sum(last_of(attention.head_width, head.unit))
        return load(head.scratch, [begin + index])
    # Values are read where they lie: laying them out in panels, as the keys, gained nothing.
    at = {**place, attention.column.var: column, attention.width.var: index}
    return substitute(attention.real_value, at)

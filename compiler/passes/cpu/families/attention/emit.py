"""The attention kernel: softmax(changed(query @ key)) @ value, with scores that stay in the cache.

A task is a head, or some of its queries where heads are few. It packs the keys of the head into
panels once. Loop order then: 6 or 12 queries at a time; their scores by all keys, panel by panel;
softmax of each row; their results, a block of columns at a time, over all values.

In both matmuls registers hold the accumulators of these queries by one or two vectors. Their scores
are in L1 or L2, the keys and values of a head in L2: for 512 keys of 64 elements 128 KiB
each. One or two queries of a task read the keys without packing; few queries of a head are left to
`decode`, and so is any number of them in a steady attention.

Values are read in place, except those whose rows do not end with a full vector (`rows`): these are
packed once for a task, too.
"""

import operator
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import tvm_ffi
from tvm import tirx

from compiler.passes.cpu.families.attention import plan
from compiler.passes.cpu.families.attention.decode import decode_limit, emit_decode, emit_prefill
from compiler.passes.cpu.families.attention.match import Attention
from compiler.passes.cpu.families.attention.panels import pack_keys, panel_of
from compiler.passes.cpu.families.attention.rows import (
    is_filled_up,
    is_ragged,
    last_of,
    pieces,
    strip_of,
)
from compiler.passes.cpu.families.attention.softmax import Row, reduce_buffer, softmax_rows
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


def sizes_of(unit: VectorUnit) -> tuple[int, ...]:
    """The numbers of queries that a block may have: 4 in WebAssembly; with AVX-512 6 or 12, as 12
    read keys and values from L2 half as often.
    """
    if not unit.scheduled:
        return (rows_for(unit, 2),)
    return (plan.ROWS, 2 * plan.ROWS) if unit.memory_bound else (plan.ROWS,)


def emit_prelude(attention: Attention) -> Attention:
    """Emit variables for the attention's extents; return the attention with these."""
    for stmt in attention.prelude:
        emit(stmt)
    axes = (*attention.batch, attention.row, attention.column)
    *batch, row, column = bind_extents(axes)
    return replace(attention, batch=tuple(batch), row=row, column=column)


def emit_attention(attention: Attention, unit: VectorUnit) -> Stmt:
    """The body of the kernel, in tasks of all or some queries of a head."""
    with statements() as body:
        known = emit_prelude(attention)
        # As many queries as keys, of the same tokens, are no decode step, however few.
        alone = tvm_ffi.structural_equal(attention.row.extent, attention.column.extent)
        # `decode` would cut ragged rows into narrow vectors.
        ragged = is_ragged(known.head_depth) or is_ragged(known.head_width)
        with when(False if alone or ragged else known.row.extent <= decode_limit(known)):
            emit_decode(known, unit)
        with otherwise():
            if known.steady:
                emit_prefill(known, unit)
            else:
                _emit_heads(known, unit)
    return body.stmt


def _emit_heads(attention: Attention, unit: VectorUnit) -> None:
    """Emit tasks with panels of keys."""
    heads, m = multiply_extents(extents_of(attention.batch)), attention.row.extent
    each = rows_of_task(heads, m, sizes_of(unit)[-1])
    parallel_if = is_work_parallel(attention, 2)
    for position, part in share_positions(attention.batch, tirx.ceildiv(m, each), parallel_if):
        first = let_opaque("first", part * each)
        count = let_opaque("count", tirx.min(each, m - first))
        # LLVM does not move divisions by what might be 0 out of loops that might not be entered.
        _emit_head(attention, unit, let_all_opaque(position), first, count)


def is_work_parallel(attention: Attention, each: int) -> Expr:
    """The condition that all heads are enough work for several threads; each: operations that take
    as long as a multiply-accumulate.
    """
    heads = multiply_extents(extents_of(attention.batch))
    scores = attention.row.extent * attention.column.extent
    flops = scores * (each * (attention.head_depth + attention.head_width))
    return heads * (flops + plan.HEAD_OVERHEAD) >= PARALLEL_FLOPS // 2


def rows_of_task(heads: Expr, m: Expr, block: int) -> Expr:
    """The queries of a task: the `m` of a head in about equal parts, in multiples of `block`.
    Clamped to 1: it is a divisor, and there may be no queries.
    """
    parts = let_opaque("parts", tirx.max(tirx.ceildiv(m, plan.TASK_ROWS), 1))
    part = tirx.ceildiv(tirx.ceildiv(m, parts), block) * block
    return let_opaque("each", tirx.max(tirx.Select(heads >= plan.MANY_HEADS, m, part), 1))


@dataclass(frozen=True)
class _Head:
    """One task: queries of the head at `position`.

    scratch: the panels of `padded` keys and behind them, from `scores` on, the scores [vector of
    keys, query, lane] of a block of queries: one buffer, as TVM's pool takes longer to free the
    first of two. The scores of all queries by a vector of keys are neighbours, so that one address
    reaches them. From `values` on there are the packed values, where their rows are padded.
    """

    attention: Attention
    unit: VectorUnit
    position: Table
    padded: Expr
    scratch: Any
    scores: Expr
    values: Expr

    def query(self, index: Expr) -> Table:
        """The position of a query; past the last one it is the last one again, computed and stored
        twice, which is cheaper than a mask in every loop.
        """
        row = self.attention.row
        return {**self.position, row.var: fresh("row", tirx.min(index, row.extent - 1))}


def _emit_head(
    attention: Attention, unit: VectorUnit, position: Table, first: Expr, count: Expr
) -> None:
    """Emit the results of `count` queries from `first` on of the head at a position."""
    panel = panel_of(unit)
    padded = let_opaque("padded", tirx.ceildiv(attention.column.extent, panel) * panel)
    sizes, depth, values = (sizes_of(unit), attention.head_depth, _values_size(attention, unit))
    # Each task has its own scratch memory, reused from block to block, so it stays in the cache.
    # One or two queries read each key too rarely for packing to be profitable.
    with when(count > 2):
        values_begin = padded * (depth + sizes[-1])
        scratch = alloc([values_begin + values], "float32", "scratch", "global")
        head = _Head(attention, unit, position, padded, scratch, padded * depth, values_begin)
        pack_keys(attention, unit, position, scratch)
        _pack_values(head)
        with serial(tirx.ceildiv(count, sizes[-1]), "rows") as block:
            row = let("row", first + block * sizes[-1])
            for rows in least(sizes, first + count - row):
                _emit_scores(head, row, rows)
                _emit_rows(head, row, rows)
    with otherwise():
        scratch = alloc([padded + values], "float32", "scratch", "global")
        head = _Head(attention, unit, position, padded, scratch, const(0), padded)
        _pack_values(head)
        with serial(count, "rows") as block:
            row = let("row", first + block)
            _emit_row_scores(attention, unit, head.query(row), scratch)
            _emit_rows(head, row, 1)


def _emit_rows(head: _Head, first: Expr, rows: int) -> None:
    """Emit the results of `rows` queries from `first` on, from their scores."""
    lanes = head.unit.lanes(32)
    totals = alloc([rows], "float32", "totals")
    interleaved = min(rows, plan.ROWS)
    with serial(rows // interleaved, "group") as group:
        score_rows = [
            Row(head.query(first + i), head.scores + i * lanes, rows * lanes, i)
            for i in (group * interleaved + j for j in range(interleaved))
        ]
        softmax_rows(head.attention, head.unit, score_rows, head.scratch, totals)
    _weigh_values(head, first, rows, totals)


def _emit_scores(head: _Head, first: Expr, rows: int) -> None:
    """Emit the scores of queries by all keys, and by the padding of the last panel."""
    attention, unit = head.attention, head.unit
    panel, lanes, depth = panel_of(unit), unit.lanes(32), attention.head_depth
    # Contiguous, so that one address reaches all of them.
    queries = alloc([rows * depth], "float32", "queries")
    with serial(rows, "i") as i:
        position = head.query(first + i)
        for start, width in blocks(depth, strip_of(depth, unit), "k"):
            with vectorize(width) as lane:
                query = substitute(attention.query, {**position, attention.depth.var: start + lane})
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


def _emit_row_scores(attention: Attention, unit: VectorUnit, position: Table, scores: Any) -> None:
    """Emit scores[j] = query @ key j for one query, in vectors along the depth, without packing."""
    lanes = strip_of(attention.head_depth, unit)
    with serial(attention.column.extent, "column") as j:
        acc = alloc([lanes], "float32", "acc")
        with vectorize(lanes) as lane:
            store(acc, 0, lane)
        for start, width in blocks(attention.head_depth, lanes, "k"):
            with vectorize(width) as lane:
                depth = {attention.depth.var: start + lane}
                element = {**position, attention.column.var: j, **depth}
                term = substitute(attention.query, element) * substitute(
                    attention.scaled_key, element
                )
                store(acc, load(acc, [lane]) + term, lane)
        # With one query, lanes hold partial sums of one score.
        store(scores, reduce_buffer(acc, lanes, operator.add), j)


def _values_size(attention: Attention, unit: VectorUnit) -> Expr:
    """Elements of a head's packed values in scratch memory: 0 if they are read in place."""
    if not is_filled_up(attention.head_width, unit):
        return const(0)
    return attention.column.extent * sum(last_of(attention.head_width, unit))


def _pack_values(head: _Head) -> None:
    """Emit the packing of the head's values if their rows are padded."""
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
                element = {
                    **head.position,
                    attention.column.var: column,
                    attention.width.var: start + lane,
                }
                store(
                    head.scratch,
                    substitute(attention.scaled_value, element),
                    begin + (start + lane),
                )


def _weigh_values(head: _Head, first: Expr, rows: int, totals: Any) -> None:
    """Emit the results: the values weighed by the powers, over the sum of the powers."""
    attention, target = head.attention, head.attention.target
    positions = [head.query(first + i) for i in range(rows)]
    for start, width, count in _blocks_of(attention.head_width, head.unit):
        lanes = min(width, head.unit.lanes(32))
        acc = alloc([rows, width], "float32", "acc")
        _weigh_columns(head, positions[0], start, acc)
        for i, position in enumerate(positions):
            for begin, each in pieces(count, lanes):
                with vectorize(each) as lane:
                    element = {**position, attention.width.var: start + (const(begin) + lane)}
                    # The sum divides the elements of the result, which are fewer than the powers.
                    result = load(acc, [i, const(begin) + lane]) / load(totals, [i])
                    store(target.source, result, substitute(target.indices[0], element))


def _weigh_columns(head: _Head, position: Table, start: Expr, acc: Any) -> None:
    """Emit acc[query, column] = the columns of the values from `start` on, weighed by each query's
    powers.
    """
    n, each = head.attention.column.extent, head.unit.lanes(32)
    rows, width = map(int, acc.shape)
    lanes = min(width, each)
    for i, lane in tile(rows, width, lanes):
        store(acc, 0, i, lane)

    def weigh(strip: Expr, k: Expr) -> None:
        for i, lane in tile(rows, width, lanes):
            value = _value(head, position, strip * each + k, start + lane)
            power = load(head.scratch, [head.scores + (strip * rows + i) * each + k])
            store(acc, load(acc, [i, lane]) + power * value, i, lane)

    full = n // each
    with serial(full, "strip") as strip:
        for k in steps(const(each), head.unit.unroll):
            weigh(strip, k)
    with serial(n - full * each, "k") as k:
        weigh(full, k)


def _blocks_of(size: int, unit: VectorUnit) -> Iterator[tuple[Expr, int, int]]:
    """(start, width, count) of the blocks of columns of values of `size` whose accumulators are in
    registers at the same time: of `width` columns, `count` are no padding.
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


def _value(head: _Head, position: Table, column: Expr, index: Expr) -> Expr:
    """An element of a value, the same for the position of any query."""
    attention = head.attention
    if is_filled_up(attention.head_width, head.unit):
        begin = head.values + column * sum(last_of(attention.head_width, head.unit))
        return load(head.scratch, [begin + index])
    # Values are read in place: packing them into panels, as the keys are, was not faster.
    element = {**position, attention.column.var: column, attention.width.var: index}
    return substitute(attention.scaled_value, element)

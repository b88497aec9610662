"""The attention kernel: softmax(changed(query @ key)) @ value, with the scores kept in the cache.

A task is a head, or some of its queries where heads are few. It lays the keys of the head out in
panels once. Loop order then: 6 queries at a time; their scores by all keys, panel by panel; softmax
of each row; their results, a block of columns at a time, over all values.

In both matmuls registers hold the accumulators of 6 queries by one or two vectors. The scores of 6
queries are in L1 or L2, the keys and values of a head in L2: for 512 keys of 64 elements 128 KiB
each. Up to two queries of a task read the keys straight from memory; few queries of a head, as when
text is decoded, are `decode`'s, and so is any number of them where sums have one order.
"""

from dataclasses import replace
from typing import Any

import tvm_ffi
from tvm import tirx

from compiler.passes.cpu.families.attention.decode import emit_few, emit_many, few
from compiler.passes.cpu.families.attention.match import Attention
from compiler.passes.cpu.families.attention.panels import pack_keys, panel_of
from compiler.passes.cpu.families.attention.softmax import softmax_row
from compiler.passes.cpu.shared.register_tile import rows_for
from compiler.passes.cpu.shared.sharing import computed_once, extents_of, share_places
from compiler.targets.vector_unit import VectorUnit
from compiler.tir.building import (
    alloc,
    emit,
    fresh,
    let,
    otherwise,
    serial,
    statements,
    steps,
    store,
    tile,
    vectorized,
    when,
)
from compiler.tir.exprs import Expr, Table, load, substitute
from compiler.tir.loops import PARALLEL_FLOPS, Stmt, product

ROWS = 6
"""Queries whose scores and results are computed together, where registers hold them."""

TASK_ROWS = 128
"""Queries of one task where there are few heads to share out, about: laying keys out takes as long
as five queries do.
"""

MANY_HEADS = 8
"""Heads from which on each is one task: its keys are laid out once."""


def rows_of(unit: VectorUnit) -> int:
    """Queries whose scores and results are computed together: 4 in WebAssembly."""
    return ROWS if unit.scheduled else rows_for(unit, 2)


def begun(attention: Attention) -> Attention:
    """Emit what the attention's extents are computed from; gives it with extents that are."""
    for stmt in attention.prelude:
        emit(stmt)
    axes = (*attention.batch, attention.row, attention.column)
    *batch, row, column = computed_once(axes)
    return replace(attention, batch=tuple(batch), row=row, column=column)


def emit_attention(attention: Attention, unit: VectorUnit) -> Stmt:
    """The kernel: tasks, each all queries of a head or some of them."""
    with statements() as body:
        known = begun(attention)
        # Few queries beside as many keys, of the same text, are no decoding.
        alone = tvm_ffi.structural_equal(attention.row.extent, attention.column.extent)
        few_queries = tirx.const(False, "bool") if alone else known.row.extent <= few(known)
        with when(few_queries):
            emit_few(known, unit)
        with otherwise():
            if known.steady:
                emit_many(known, unit)
            else:
                _emit_heads(known, unit)
    return body.stmt


def _emit_heads(attention: Attention, unit: VectorUnit) -> None:
    """Emit tasks with panels of keys."""
    heads, m, n = (
        product(extents_of(attention.batch)),
        attention.row.extent,
        attention.column.extent,
    )
    each = rows_of_task(heads, m, rows_of(unit))
    work = heads * m * n * (2 * (attention.head_depth + attention.head_width))
    for at, part in share_places(attention.batch, tirx.ceildiv(m, each), work >= PARALLEL_FLOPS):
        first = let("first", part * each)
        _emit_head(attention, unit, at, first, tirx.min(each, m - first))


def rows_of_task(heads: Expr, m: Expr, together: int) -> Expr:
    """How many of the `m` queries of a head are a task: about equal parts, in whole blocks of
    `together`. Never 0, as it divides: no queries are no parts of one.
    """
    parts = let("parts", tirx.max(tirx.ceildiv(m, TASK_ROWS), 1))
    part = tirx.ceildiv(tirx.ceildiv(m, parts), together) * together
    return let("each", tirx.max(tirx.Select(heads >= MANY_HEADS, m, part), 1))


def _emit_head(attention: Attention, unit: VectorUnit, at: Table, first: Expr, count: Expr) -> None:
    """The results of `count` queries of the head `at`, from query `first` on."""
    panel = panel_of(unit)
    padded = let("padded", tirx.ceildiv(attention.column.extent, panel) * panel)
    rows = rows_of(unit)
    # Each task has its own, reused from one block of queries to the next, so it stays in the cache.
    scores = alloc([padded * rows], "float32", "scores", "global")
    # Up to two queries read each key too rarely to pay for laying them out.
    with when(count > 2):
        keys = alloc([padded * attention.head_depth], "float32", "keys", "global")
        pack_keys(attention, unit, at, keys)
        with serial(tirx.ceildiv(count, rows), "rows") as block:
            row = let("row", first + block * rows)
            _emit_rows(attention, unit, at, row, rows, keys, scores, padded)
    with otherwise():
        with serial(count, "rows") as block:
            row = let("row", first + block)
            _emit_rows(attention, unit, at, row, 1, None, scores, padded)


def _emit_rows(
    attention: Attention,
    unit: VectorUnit,
    at: Table,
    first: Expr,
    rows: int,
    keys: Any,
    scores: Any,
    padded: Expr,
) -> None:
    """The results of `rows` queries from `first` on; past the last one it is the last one again.

    keys: the packed keys; None to read them from memory, for a single query.
    """
    # Clamped rows are computed and written twice, which is cheaper than a mask in every loop.
    last, row_var = attention.row.extent - 1, attention.row.var
    indices = [fresh(f"row{i}", tirx.min(first + i, last)) for i in range(rows)]
    places = [{**at, row_var: index} for index in indices]
    totals = alloc([rows], "float32", "totals")
    if keys is None:
        _scores_of_one(attention, unit, places[0], scores)
    else:
        _scores_of_all(attention, unit, places, keys, scores, padded)
    with serial(rows, "row") as i:
        place = {**at, row_var: let("place", tirx.min(first + i, last))}
        softmax_row(attention, unit, place, scores, i * padded, totals, i)
    _weigh_values(attention, unit, places, scores, padded, totals)


def _scores_of_all(
    attention: Attention,
    unit: VectorUnit,
    places: list[Table],
    keys: Any,
    scores: Any,
    padded: Expr,
) -> None:
    """scores[i, j] = query i @ key j for all keys, and for the filling of the last panel."""
    rows, panel, lanes = len(places), panel_of(unit), unit.lanes(32)
    depth = attention.head_depth
    with serial(tirx.ceildiv(attention.column.extent, panel), "panel") as p:
        acc = alloc([rows, panel], "float32", "acc")
        for i, lane in tile(rows, panel, lanes):
            store(acc, 0, i, lane)
        for k in steps(depth, unit.together):
            for i, lane in tile(rows, panel, lanes):
                query = substitute(attention.query, {**places[i], attention.depth.var: k})
                key = load(keys, [(p * depth + k) * panel + lane])
                store(acc, load(acc, [i, lane]) + query * key, i, lane)
        for i, lane in tile(rows, panel, lanes):
            store(scores, load(acc, [i, lane]), i * padded + p * panel + lane)


def _scores_of_one(attention: Attention, unit: VectorUnit, place: Table, scores: Any) -> None:
    """scores[j] = query @ key j for one query, in vectors along the depth, without packed keys."""
    lanes = min(_dividing(attention.head_depth, unit.lanes(32)), unit.lanes(32))
    with serial(attention.column.extent, "column") as j:
        acc = alloc([lanes], "float32", "acc")
        with vectorized(lanes) as lane:
            store(acc, 0, lane)
        with serial(attention.head_depth // lanes, "k") as strip:
            with vectorized(lanes) as lane:
                depth = {attention.depth.var: strip * lanes + lane}
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
        with vectorized(lanes) as lane:
            store(acc, load(acc, [lane]) + load(acc, [lane + lanes]), lane)


def _weigh_values(
    attention: Attention,
    unit: VectorUnit,
    places: list[Table],
    scores: Any,
    padded: Expr,
    totals: Any,
) -> None:
    """The results: the values weighed by the powers in `scores`, over the sum of the powers."""
    rows, width = len(places), _dividing(attention.head_width, unit.lanes(32))
    lanes, target = min(width, unit.lanes(32)), attention.target
    with serial(attention.head_width // width, "columns") as block:
        acc = alloc([rows, width], "float32", "acc")
        for i, lane in tile(rows, width, lanes):
            store(acc, 0, i, lane)
        # Values are read where they lie: laying them out in panels, as the keys, gained nothing.
        for k in steps(attention.column.extent, unit.together):
            for i, lane in tile(rows, width, lanes):
                # The value does not depend on the query, so any query's place will do.
                at = {**places[0], attention.width.var: block * width + lane}
                value = substitute(attention.real_value, {**at, attention.column.var: k})
                power = load(scores, [i * padded + k])
                store(acc, load(acc, [i, lane]) + power * value, i, lane)
        for i, lane in tile(rows, width, lanes):
            at = {**places[i], attention.width.var: block * width + lane}
            # Here the sum of powers divides as many elements as a value has, not one for each key.
            result = load(acc, [i, lane]) / load(totals, [i])
            store(target.source, result, substitute(target.indices[0], at))


def _dividing(size: int, lanes: int) -> int:
    """The greatest of two vectors, one, and half of one that divides `size`, else 1."""
    widths = (2 * lanes, lanes, max(lanes // 2, 1), 1)
    return next(width for width in widths if size % width == 0)

"""The attention kernel with bfloat16 dot products.

A task is a head, or some of its queries where heads are few. It packs keys and values once
(`bfloat16_panels`). Loop order then: 6 queries at a time, which are rounded; their scores, panel by
panel; softmax of each row in float32, whose result is rounded (`bfloat16_rows`); their results, two
vectors of columns at a time, over all values.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from tvm import tirx

from compiler.passes.cpu.families.attention import plan
from compiler.passes.cpu.families.attention.bfloat16_panels import (
    Bfloat16Head,
    pack_keys,
    pack_values,
    store_row,
)
from compiler.passes.cpu.families.attention.bfloat16_rows import (
    ScoreRows,
    change_rest,
    emit_weights,
)
from compiler.passes.cpu.families.attention.emit import emit_prelude, is_work_parallel, rows_of_task
from compiler.passes.cpu.families.attention.groups import prefetch_row
from compiler.passes.cpu.families.attention.match import Attention
from compiler.passes.cpu.families.attention.panels import panel_of
from compiler.passes.cpu.shared.bfloats import (
    add_dot,
    load_pair,
    load_vector,
    storage_dtype,
    with_instructions,
)
from compiler.passes.cpu.shared.sharing import extents_of, share_positions
from compiler.targets.vector_unit import VectorUnit
from compiler.tir.building import (
    across,
    alloc,
    blocks,
    fresh,
    let,
    let_all_opaque,
    let_opaque,
    otherwise,
    serial,
    statements,
    steps,
    store,
    vectorize,
    when,
)
from compiler.tir.exprs import Expr, Table, const, load, substitute
from compiler.tir.loops import Stmt, multiply_extents


def emit_bfloat16(attention: Attention, unit: VectorUnit) -> Stmt:
    """The body of the kernel, in tasks of all or some queries of a head."""
    with statements() as body:
        known = emit_prelude(attention)
        heads, m = multiply_extents(extents_of(known.batch)), known.row.extent
        each = rows_of_task(heads, m, plan.ROWS)
        parallel_if = is_work_parallel(known, 1)
        for position, part in share_positions(known.batch, tirx.ceildiv(m, each), parallel_if):
            first = let_opaque("first", part * each)
            count = let_opaque("count", tirx.min(each, m - first))
            _emit_head(known, unit, let_all_opaque(position), first, count)
    return with_instructions(body.stmt, unit)


def _emit_head(
    attention: Attention, unit: VectorUnit, position: Table, first: Expr, count: Expr
) -> None:
    """Emit the results of `count` queries from `first` on of the head at a position."""
    panel = panel_of(unit)
    padded = let_opaque("padded", tirx.ceildiv(attention.column.extent, panel) * panel)
    head = Bfloat16Head.of(attention, unit, position, padded)
    scores = alloc([padded * plan.ROWS], "float32", "scores", "global")
    weights = alloc([padded * plan.ROWS], storage_dtype(unit), "weights", "global")
    pack_keys(head)
    pack_values(head)
    with serial(tirx.ceildiv(count, plan.ROWS), "rows") as block:
        _emit_rows(head, let("row", first + block * plan.ROWS), scores, weights)


def _emit_rows(head: Bfloat16Head, first: Expr, scores: Any, weights: Any) -> None:
    """Emit the results of ROWS queries from `first` on; past the last one it is the last one again.

    scores, weights: scratch memory for a block of queries.
    """
    attention, row, depth = head.attention, head.attention.row, head.attention.head_depth
    # Clamped rows are computed and stored twice, which is cheaper than a mask in every loop.
    indices = [fresh(f"row{i}", tirx.min(first + i, row.extent - 1)) for i in range(plan.ROWS)]
    positions = [{**head.position, row.var: index} for index in indices]
    queries = alloc([plan.ROWS * depth], storage_dtype(head.unit), "queries")
    for i, position in enumerate(positions):
        store_row(head, queries, const(i * depth), attention.query, position)
    for i in range(plan.ROWS):
        # Queries of a head are far apart: the hardware does not prefetch the next ones.
        index = tirx.min(first + (plan.ROWS + i), row.extent - 1)
        position = {**head.position, row.var: let("next", index)}
        prefetch_row(attention.query, position, attention.depth.var, (const(0), depth))
    rows = ScoreRows.of(attention, head.unit, positions, scores, weights)
    _emit_scores(head, rows, queries)
    emit_weights(rows)
    _weigh_values(head, rows)


def _emit_scores(head: Bfloat16Head, rows: ScoreRows, queries: Any) -> None:
    """Emit the changed scores of the rows by all keys, and by the padding of the last panel."""
    unit, panel, depth = head.unit, panel_of(head.unit), head.attention.head_depth
    n, lanes = head.attention.column.extent, head.unit.lanes(32)
    # Scores by full panels are changed before they leave the registers, if that has a vector form.
    full_panels = n // panel if rows.in_vectors else const(0)
    with serial(tirx.ceildiv(n, panel), "panel") as p:
        acc = _alloc_zeros(plan.ROWS * panel, unit)
        for k in steps(const(head.pairs), unit.unroll, head.pairs):
            starts = [const(i * depth) + k * 2 for i in range(plan.ROWS)]
            _emit_step(head, acc, head.keys, (p * head.pairs + k) * panel, queries, starts)
        with when(p < full_panels if rows.in_vectors else False):
            for i, part, score, lane in _scores_in(acc, panel, lanes):
                rows.change(p * (panel // lanes) + part, lane, lane, i, score)
        with otherwise():
            for i, part, score, lane in _scores_in(acc, panel, lanes):
                store(rows.scores, score, rows.begin(p * (panel // lanes) + part, i) + lane)
    change_rest(rows, full_panels * (panel // lanes))


def _scores_in(acc: Any, panel: int, lanes: int) -> Iterator[tuple[int, int, Expr, Expr]]:
    """(row, vector of the panel, score, lane) of every vector of a tile of scores."""
    for i in range(plan.ROWS):
        for part in range(panel // lanes):
            with vectorize(lanes) as lane:
                yield i, part, load(acc, [const(i * panel + part * lanes) + lane]), lane


def _alloc_zeros(size: int, unit: VectorUnit) -> Any:
    acc = alloc([size], "float32", "acc")
    for lane in across(size, unit.lanes(32)):
        store(acc, 0, lane)
    return acc


def _emit_step(
    head: Bfloat16Head, acc: Any, vectors: Any, begin: Expr, numbers: Any, starts: Sequence[Expr]
) -> None:
    """Emit row i of `acc` += the vectors from `begin` on times the pair at `starts[i]`."""
    lanes, width = head.unit.lanes(32), int(acc.shape[0]) // len(starts)
    firsts = range(0, width, lanes)
    columns = [load_vector(vectors, begin + first, lanes) for first in firsts]
    for i, start in enumerate(starts):
        pair = load_pair(numbers, start)
        for first, vector in zip(firsts, columns, strict=True):
            add_dot(acc, i * width + first, vector, pair, lanes)


def _weigh_values(head: Bfloat16Head, rows: ScoreRows) -> None:
    """Emit the results: the values weighed by the softmax."""
    attention, unit, target = head.attention, head.unit, head.attention.target
    count, lanes = len(rows.positions), unit.lanes(32)
    for first, width in _vectors(head):
        acc = _alloc_zeros(count * width, unit)
        for strip, pair in _pairs(head):
            begins = [rows.begin(strip, i) + pair * 2 for i in range(count)]
            vectors = (strip * (lanes // 2) + pair) * head.columns + first
            _emit_step(head, acc, head.values, vectors, rows.weights, begins)
        for i, position in enumerate(rows.positions):
            for start, each in blocks(min(width, attention.head_width - first), lanes, "column"):
                with vectorize(each) as lane:
                    element = {**position, attention.width.var: const(first) + start + lane}
                    result = load(acc, [const(i * width) + start + lane])
                    store(target.source, result, substitute(target.indices[0], element))


def _pairs(head: Bfloat16Head) -> Iterator[tuple[Expr, Expr]]:
    """(vector of keys, pair in it) of every pair of keys."""
    n, lanes, unroll = head.attention.column.extent, head.unit.lanes(32), head.unit.unroll
    full = n // lanes
    with serial(full, "strip") as strip:
        for pair in steps(const(lanes // 2), unroll, lanes // 2):
            yield strip, pair
    with serial(tirx.ceildiv(n - full * lanes, 2), "pair") as pair:
        yield full, pair


def _vectors(head: Bfloat16Head) -> Iterator[tuple[int, int]]:
    """(first, width) of the columns whose accumulators are in registers at the same time."""
    most = 2 * head.unit.lanes(32)
    for first in range(0, head.columns, most):
        yield first, min(most, head.columns - first)

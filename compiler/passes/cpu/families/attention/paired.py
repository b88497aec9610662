"""The attention kernel whose operands are rounded to bfloat16: as `emit`, by products of pairs.

A task is a head, or some of its queries where heads are few. It lays keys and values out once:
keys in panels of pairs along the depth, values in pairs of neighbouring keys. Loop order then: 6
queries at a time, which are rounded; their scores, panel by panel; softmax of each row in float32,
whose result is rounded; their results, two vectors of columns at a time, over all values.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tvm import tirx

from compiler.passes.cpu.families.attention.emit import ROWS, begun, rows_of_task
from compiler.passes.cpu.families.attention.match import Attention
from compiler.passes.cpu.families.attention.panels import panel_of
from compiler.passes.cpu.families.attention.softmax import Row, softmax_rows
from compiler.passes.cpu.shared.bfloats import (
    HELD,
    add_product,
    held_as,
    pair_at,
    store_rounded,
    vector_at,
    with_instructions,
)
from compiler.passes.cpu.shared.sharing import extents_of, share_places
from compiler.targets.vector_unit import VectorUnit
from compiler.tir.building import (
    alloc,
    blocks,
    fresh,
    let,
    let_all_opaque,
    let_opaque,
    serial,
    statements,
    steps,
    store,
    tile,
    vectorized,
    when,
)
from compiler.tir.exprs import Expr, Table, const, load, substitute
from compiler.tir.loops import PARALLEL_FLOPS, Stmt, product


@dataclass(frozen=True)
class _Head:
    """One task: queries of the head at `at`, of all of whose keys there is scratch memory for.

    scores: float32 of ROWS queries, `padded` each; weights: the same, rounded; queries: of ROWS
    queries, rounded; keys: [panel, pair of the depth, lane]; values: [pair of keys, column].
    """

    attention: Attention
    unit: VectorUnit
    at: Table
    padded: Expr
    scores: Any
    weights: Any
    queries: Any
    keys: Any
    values: Any

    @property
    def pairs(self) -> int:
        """Pairs of a query or a key."""
        return self.attention.head_depth // 2

    @property
    def columns(self) -> int:
        """Columns of the results, in whole vectors."""
        lanes = self.unit.lanes(32)
        return -(-self.attention.head_width // lanes) * lanes


def emit_paired(attention: Attention, unit: VectorUnit) -> Stmt:
    """The kernel: tasks, each all queries of a head or some of them."""
    with statements() as body:
        known = begun(attention)
        heads, m, n = product(extents_of(known.batch)), known.row.extent, known.column.extent
        each = rows_of_task(heads, m, ROWS)
        work = heads * m * n * (attention.head_depth + attention.head_width)
        for at, part in share_places(known.batch, tirx.ceildiv(m, each), work >= PARALLEL_FLOPS):
            first = let_opaque("first", part * each)
            count = let_opaque("count", tirx.min(each, m - first))
            _emit_head(known, unit, let_all_opaque(at), first, count)
    return with_instructions(body.stmt, unit)


def _emit_head(attention: Attention, unit: VectorUnit, at: Table, first: Expr, count: Expr) -> None:
    """The results of `count` queries of the head `at`, from query `first` on."""
    panel, kind = panel_of(unit), held_as(unit)
    padded = let_opaque("padded", tirx.ceildiv(attention.column.extent, panel) * panel)
    depth, columns = attention.head_depth, -(-attention.head_width // unit.lanes(32))
    head = _Head(
        attention,
        unit,
        at,
        padded,
        scores=alloc([padded * ROWS], "float32", "scores", "global"),
        weights=alloc([padded * ROWS], kind, "weights", "global"),
        queries=alloc([ROWS * depth], kind, "queries"),
        keys=alloc([padded * (depth // 2)], HELD, "keys", "global"),
        values=alloc([padded * columns * (unit.lanes(32) // 2)], HELD, "values", "global"),
    )
    _pack_keys(head, panel)
    _pack_values(head)
    with serial(tirx.ceildiv(count, ROWS), "rows") as block:
        _emit_rows(head, let("row", first + block * ROWS))


def _pack_keys(head: _Head, panel: int) -> None:
    """keys[panel, pair, lane]: the keys of the head; the last key again where the last panel is not
    full, so that no lane reads past the keys.
    """
    attention, unit = head.attention, head.unit
    n, column = attention.column.extent, attention.column.var
    with serial(tirx.ceildiv(n, panel), "panel") as p, serial(panel, "lane") as lane:
        place = {**head.at, column: let("column", tirx.min(p * panel + lane, n - 1))}
        key = alloc([attention.head_depth], held_as(unit), "key")
        _store_row(head, key, const(0), attention.real_key, place)
        with serial(head.pairs, "k") as k:
            store(head.keys, pair_at(key, k * 2), (p * head.pairs + k) * panel + lane)


def _store_row(head: _Head, target: Any, begin: Expr, value: Expr, place: Table) -> None:
    """target[begin + d] = the number of a query or a key, rounded."""
    depth, unit = head.attention.depth, head.unit
    for start, width in blocks(head.attention.head_depth, unit.lanes(32), "d"):

        def here(lane: Expr, start: Expr = start) -> Expr:
            return substitute(value, {**place, depth.var: start + lane})

        store_rounded(target, begin + start, width, unit, here)


def _pack_values(head: _Head) -> None:
    """values[pair, column]: of two neighbouring keys, the earlier one in the lower half; zeros in
    place of a key past the last one, as its weight is zero and the last key's might be infinite.
    """
    n = head.attention.column.extent
    with serial(tirx.truncdiv(n, const(2)), "pair") as pair:
        _pack_pair(head, pair, whole=True)
    with when(tirx.truncmod(n, const(2)) != 0):
        _pack_pair(head, tirx.truncdiv(n, const(2)), whole=False)


def _pack_pair(head: _Head, pair: Expr, whole: bool) -> None:
    attention, unit = head.attention, head.unit
    width, column = attention.width.var, attention.column.var
    for start, lanes in blocks(attention.head_width, unit.lanes(32), "column"):
        halves = [alloc([lanes], held_as(unit), name) for name in ("lower", "upper")]
        for half in range(2 if whole else 1):

            def value(lane: Expr, start: Expr = start, half: int = half) -> Expr:
                place = {**head.at, column: pair * 2 + half, width: start + lane}
                return substitute(attention.real_value, place)

            store_rounded(halves[half], const(0), lanes, unit, value)
        with vectorized(lanes) as lane:
            lower, upper = (load(half, [lane]).astype(HELD) for half in halves)
            both = lower | upper << tirx.const(16, HELD) if whole else lower
            store(head.values, both, pair * head.columns + start + lane)


def _emit_rows(head: _Head, first: Expr) -> None:
    """The results of ROWS queries from `first` on; past the last one it is the last one again."""
    attention, row = head.attention, head.attention.row
    # Clamped rows are computed and written twice, which is cheaper than a mask in every loop.
    indices = [fresh(f"row{i}", tirx.min(first + i, row.extent - 1)) for i in range(ROWS)]
    places = [{**head.at, row.var: index} for index in indices]
    for i, place in enumerate(places):
        _store_row(head, head.queries, const(i * attention.head_depth), attention.query, place)
    _emit_scores(head)
    totals = alloc([ROWS], "float32", "totals")
    lanes = head.unit.lanes(32)
    found = [Row(place, i * head.padded, lanes, const(i)) for i, place in enumerate(places)]
    softmax_rows(attention, head.unit, found, head.scores, totals)
    with serial(ROWS, "row") as i:
        _store_weights(head, i, totals)
    _weigh_values(head, places)


def _emit_scores(head: _Head) -> None:
    """scores[i, j] = query i @ key j for all keys, and for the filling of the last panel."""
    unit, panel, depth = head.unit, panel_of(head.unit), head.attention.head_depth
    with serial(tirx.ceildiv(head.attention.column.extent, panel), "panel") as p:
        acc = _cleared(ROWS * panel, unit)
        for k in steps(const(head.pairs), unit.together, head.pairs):
            starts = [const(i * depth) + k * 2 for i in range(ROWS)]
            _emit_step(head, acc, head.keys, (p * head.pairs + k) * panel, head.queries, starts)
        for i, lane in tile(ROWS, panel, unit.lanes(32)):
            place = i * head.padded + p * panel + lane
            store(head.scores, load(acc, [i * panel + lane]), place)


def _cleared(size: int, unit: VectorUnit) -> Any:
    acc = alloc([size], "float32", "acc")
    for _, lane in tile(1, size, unit.lanes(32)):
        store(acc, 0, lane)
    return acc


def _emit_step(
    head: _Head, acc: Any, vectors: Any, begin: Expr, numbers: Any, starts: list[Expr]
) -> None:
    """Add to row i of `acc` the vectors from `begin` on by the pair at `starts[i]`."""
    lanes, width = head.unit.lanes(32), int(acc.shape[0]) // ROWS
    firsts = range(0, width, lanes)
    found = [vector_at(vectors, begin + first, lanes) for first in firsts]
    for i, start in enumerate(starts):
        pair = pair_at(numbers, start)
        for first, vector in zip(firsts, found, strict=True):
            add_product(acc, i * width + first, vector, pair, lanes)


def _store_weights(head: _Head, i: Expr, totals: Any) -> None:
    """Row i of the weights: powers over their sum, rounded; zeros up to the end of the vector."""
    lanes, n, begin = head.unit.lanes(32), head.attention.column.extent, i * head.padded
    inverse = alloc([1], "float32", "inverse")
    store(inverse, tirx.const(1, "float32") / load(totals, [i]), 0)
    with serial(tirx.ceildiv(n, lanes), "strip") as strip:
        place = let("place", begin + strip * lanes)
        store_rounded(
            head.weights,
            place,
            lanes,
            head.unit,
            lambda lane: load(head.scores, [place + lane]) * load(inverse, [0]),
        )


def _weigh_values(head: _Head, places: list[Table]) -> None:
    """The results: the values by their weights."""
    attention, unit, target = head.attention, head.unit, head.attention.target
    n, lanes = attention.column.extent, head.unit.lanes(32)
    for first, width in _vectors(head):
        acc = _cleared(ROWS * width, unit)
        for pair in steps(tirx.ceildiv(n, 2), unit.together):
            starts = [i * head.padded + pair * 2 for i in range(ROWS)]
            begin = pair * head.columns + first
            _emit_step(head, acc, head.values, begin, head.weights, starts)
        for i, place in enumerate(places):
            for start, count in blocks(min(width, attention.head_width - first), lanes, "column"):
                with vectorized(count) as lane:
                    at = {**place, attention.width.var: const(first) + start + lane}
                    result = load(acc, [const(i * width) + start + lane])
                    store(target.source, result, substitute(target.indices[0], at))


def _vectors(head: _Head) -> Iterator[tuple[int, int]]:
    """(first, width) of the columns whose accumulators are in registers together."""
    most = 2 * head.unit.lanes(32)
    for first in range(0, head.columns, most):
        yield first, min(most, head.columns - first)

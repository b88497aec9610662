"""Scores of a group of heads by a block of keys, for `decode`.

Some heads by four keys have their accumulators in registers, so that a key is loaded once for them.
A block has as many keys as a vector has lanes, so that a head's scores are one vector.
"""

from typing import Any

from tvm import tirx
from tvm.ir.prim import expr as prim

from compiler.passes.cpu.families.attention.groups import Group, prefetch_row
from compiler.passes.cpu.families.attention.match import Attention
from compiler.passes.cpu.families.attention.scales import store_scales
from compiler.targets.vector_unit import VectorUnit
from compiler.tir.building import alloc, emit, fresh, let, serial, store, vectorize
from compiler.tir.exprs import Expr, Table, const, load, substitute

KEYS = 4
"""Keys whose scores are summed up together."""


def emit_scores(
    attention: Attention,
    unit: VectorUnit,
    group: Group,
    place: Table,
    first: Expr,
    scores: Any,
    stride: int,
) -> None:
    """Emit scores[head * stride + j] = query @ key j of every head of the group, for `lanes_of`
    keys from `first` on; beyond the last key it is the last one again.
    """
    lanes = lanes_of(attention, unit)
    keys = min(KEYS, lanes)
    # Beside the accumulators, registers hold a query's vector for each head, and a key.
    tiles = group.tiles((unit.registers - 2) // (keys + 1))
    scales = None
    if attention.key_scale is not None:
        scales = alloc([lanes], "float32", "scales")
        here = group.at(place, 0)
        store_scales(attention, attention.key_scale, here, first, lanes, scales)
    for number, (head, count) in enumerate(tiles):
        parts = alloc([count * lanes // keys, lanes], "float32", "parts")
        with serial(lanes // keys, "some") as some:
            columns = [fresh(f"column{i}", first + some * keys + i) for i in range(keys)]
            # Values are read when the scores are there: each tile prefetches some of their rows.
            for column in columns[number :: len(tiles)]:
                row = {**group.at(place, 0), attention.column.var: column}
                part = (const(0), attention.head_width)
                prefetch_row(attention.value, row, attention.width.var, part)
            sums = _products(attention, group, place, (head, count), columns, lanes)
            for i, joined in enumerate(sums):
                _store_vector(parts, joined, const(i * (lanes // keys)) + some, lanes)
        for i in range(count):
            held = [_vector(parts, i * (lanes // keys) + j, lanes) for j in range(lanes // keys)]
            where: Any = (head + i) * stride + first
            whole = _joined(held, lanes // keys, lanes)
            if scales is not None:
                whole = whole * load(scales, [_lanes(lanes)])
            place_of = prim.Ramp(where, const(1), lanes) if lanes > 1 else where
            emit(tirx.BufferStore(scores, whole, [place_of]))


def _products(
    attention: Attention,
    group: Group,
    place: Table,
    heads: tuple[int, int],
    columns: list[Expr],
    lanes: int,
) -> list[Expr]:
    """For each of the heads, (first, count), a vector of the sums of its products by each of the
    keys, of which each still is some lanes.
    """
    first, count = heads
    last = attention.column.extent - 1
    rows = [let(f"key{i}", tirx.min(column, last)) for i, column in enumerate(columns)]
    acc = alloc([count * len(rows), lanes], "float32", "acc")
    for i in range(count * len(rows)):
        with vectorize(lanes) as lane:
            store(acc, 0, i, lane)
    query = alloc([count, lanes], "float32", "query")
    key = alloc([lanes], "float32", "key")
    with serial(attention.head_depth // lanes, "k") as strip:
        for head in range(count):
            with vectorize(lanes) as lane:
                at = {**group.at(place, first + head), attention.depth.var: strip * lanes + lane}
                store(query, substitute(attention.query, at), head, lane)
        for i, row in enumerate(rows):
            with vectorize(lanes) as lane:
                # Any head's place will do for a key: the first one's needs no division.
                at = {**group.at(place, 0), attention.column.var: row}
                depth = {attention.depth.var: strip * lanes + lane}
                store(key, substitute(attention.key, {**at, **depth}), lane)
            for head in range(count):
                with vectorize(lanes) as lane:
                    to = head * len(rows) + i
                    term = load(query, [head, lane]) * load(key, [lane])
                    store(acc, load(acc, [to, lane]) + term, to, lane)
    vectors = [_vector(acc, i, lanes) for i in range(count * len(rows))]
    each = [vectors[i * len(rows) : (i + 1) * len(rows)] for i in range(count)]
    return [_joined(some, lanes, lanes) for some in each]


def lanes_of(attention: Attention, unit: VectorUnit) -> int:
    """Of the vectors that a query is cut into: as many as divide it."""
    lanes = unit.lanes(32)
    while attention.head_depth % lanes:
        lanes //= 2
    return lanes


def _vector(acc: Any, i: int, lanes: int) -> Expr:
    """Row i of [.., lanes]."""
    return load(acc, [const(i), _lanes(lanes)])


def _lanes(lanes: int) -> Expr:
    return prim.Ramp(const(0), const(1), lanes) if lanes > 1 else const(0)


def _store_vector(buffer: Any, value: Expr, row: Expr, lanes: int) -> None:
    emit(tirx.BufferStore(buffer, value, [row, _lanes(lanes)]))


def _joined(vectors: list[Expr], part: int, lanes: int) -> Expr:
    """A vector of sums over parts of `lanes` lanes: each of the vectors holds terms of as many sums
    as `part` goes into its lanes, in order.

    Halves of two vectors are added at once, then quarters of two of these, and so on: three
    operations for a sum, where halving each vector by itself takes eight.
    """
    while len(vectors) > 1:
        half = part // 2
        firsts = [i for i in range(2 * lanes) if i % part < half]
        seconds = [i + half for i in firsts]
        joined = []
        for one, other in zip(vectors[::2], vectors[1::2], strict=True):
            sums = alloc([lanes], "float32", "halves")
            added = _chosen(one, other, firsts) + _chosen(one, other, seconds)
            emit(tirx.BufferStore(sums, added, [prim.Ramp(const(0), const(1), lanes)]))
            joined.append(load(sums, [prim.Ramp(const(0), const(1), lanes)]))
        vectors, part = joined, half
    return vectors[0]


def _chosen(one: Expr, other: Expr, lanes: list[int]) -> Expr:
    """Some lanes of two vectors, as one."""
    return prim.Shuffle([one, other], [tirx.const(lane, "int32") for lane in lanes])

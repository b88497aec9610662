"""Scores of a group of heads by a block of keys, for `decode`.

Some heads by four keys have their accumulators in registers, so that a key is loaded once for them.
A block has as many keys as a vector has lanes, so that a head's scores are one vector.
"""

from typing import Any

from tvm import tirx
from tvm.ir.prim import expr as prim

from compiler.passes.cpu.families.attention import plan
from compiler.passes.cpu.families.attention.groups import Group, prefetch_row
from compiler.passes.cpu.families.attention.match import Attention
from compiler.passes.cpu.families.attention.scales import store_scales
from compiler.passes.cpu.shared.lanes import vector_index
from compiler.targets.vector_unit import VectorUnit
from compiler.tir.building import alloc, emit, fresh, let, serial, store, vectorize
from compiler.tir.exprs import Expr, Table, const, load, substitute


def emit_scores(
    attention: Attention,
    unit: VectorUnit,
    group: Group,
    position: Table,
    first: Expr,
    scores: Any,
    stride: int,
) -> None:
    """Emit scores[head * stride + j] = query @ key j of every head of the group, for `lanes_of`
    keys from `first` on; beyond the last key it is the last one again.
    """
    lanes = lanes_of(attention, unit)
    keys = min(plan.SCORED_KEYS, lanes)
    # Beside the accumulators, registers hold a query's vector for each head, and a key.
    tiles = group.tiles((unit.registers - 2) // (keys + 1))
    scales = None
    if attention.key_scale is not None:
        scales = alloc([lanes], "float32", "scales")
        member = group.member(position, 0)
        store_scales(attention, attention.key_scale, member, first, lanes, scales)
    for number, (head, count) in enumerate(tiles):
        parts = alloc([count * lanes // keys, lanes], "float32", "parts")
        with serial(lanes // keys, "some") as step:
            columns = [fresh(f"column{i}", first + step * keys + i) for i in range(keys)]
            # Values are read when the scores are there: each tile prefetches some of their rows.
            for column in columns[number :: len(tiles)]:
                row = {**group.member(position, 0), attention.column.var: column}
                head_row = (const(0), attention.head_width)
                prefetch_row(attention.value, row, attention.width.var, head_row)
            accumulators = _multiply(attention, group, position, (head, count), columns, lanes)
            for i, accumulator in enumerate(accumulators):
                _store_vector(parts, accumulator, const(i * (lanes // keys)) + step, lanes)
        for i in range(count):
            vectors = [_vector(parts, i * (lanes // keys) + j, lanes) for j in range(lanes // keys)]
            begin: Any = (head + i) * stride + first
            score = _reduce_parts(vectors, lanes // keys, lanes)
            if scales is not None:
                score = score * load(scales, [vector_index(lanes)])
            emit(tirx.BufferStore(scores, score, [vector_index(lanes, begin)]))


def _multiply(
    attention: Attention,
    group: Group,
    position: Table,
    heads: tuple[int, int],
    columns: list[Expr],
    lanes: int,
) -> list[Expr]:
    """Emit the dot products of some heads, (first, count), and the keys in `columns`: for each head
    a vector in which each key has some lanes, whose sum is its dot product.
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
                member = {
                    **group.member(position, first + head),
                    attention.depth.var: strip * lanes + lane,
                }
                store(query, substitute(attention.query, member), head, lane)
        for i, row in enumerate(rows):
            with vectorize(lanes) as lane:
                # All heads of the group have the same keys: the first one's position needs no
                # division.
                member = {**group.member(position, 0), attention.column.var: row}
                depth = {attention.depth.var: strip * lanes + lane}
                store(key, substitute(attention.key, {**member, **depth}), lane)
            for head in range(count):
                with vectorize(lanes) as lane:
                    to = head * len(rows) + i
                    term = load(query, [head, lane]) * load(key, [lane])
                    store(acc, load(acc, [to, lane]) + term, to, lane)
    vectors = [_vector(acc, i, lanes) for i in range(count * len(rows))]
    by_head = [vectors[i * len(rows) : (i + 1) * len(rows)] for i in range(count)]
    return [_reduce_parts(each, lanes, lanes) for each in by_head]


def lanes_of(attention: Attention, unit: VectorUnit) -> int:
    """The lanes of the vectors that a query is cut into: as many as divide it."""
    lanes = unit.lanes(32)
    while attention.head_depth % lanes:
        lanes //= 2
    return lanes


def _vector(acc: Any, i: int, lanes: int) -> Expr:
    """Row i of [.., lanes]."""
    return load(acc, [const(i), vector_index(lanes)])


def _store_vector(buffer: Any, value: Expr, row: Expr, lanes: int) -> None:
    emit(tirx.BufferStore(buffer, value, [row, vector_index(lanes)]))


def _reduce_parts(vectors: list[Expr], part: int, lanes: int) -> Expr:
    """Emit a vector of the sums over every `part` lanes of the vectors, in order; each vector has
    `lanes` lanes.

    The halves of two vectors' parts are added by one operation, then the quarters of two such
    results, and so on: three operations for a sum, where reducing each vector by itself takes
    eight.
    """
    while len(vectors) > 1:
        half = part // 2
        firsts = [i for i in range(2 * lanes) if i % part < half]
        seconds = [i + half for i in firsts]
        combined = []
        for lhs, rhs in zip(vectors[::2], vectors[1::2], strict=True):
            buffer = alloc([lanes], "float32", "halves")
            total = _select_lanes(lhs, rhs, firsts) + _select_lanes(lhs, rhs, seconds)
            emit(tirx.BufferStore(buffer, total, [vector_index(lanes)]))
            combined.append(load(buffer, [vector_index(lanes)]))
        vectors, part = combined, half
    return vectors[0]


def _select_lanes(lhs: Expr, rhs: Expr, lanes: list[int]) -> Expr:
    """A vector of some lanes of two vectors."""
    return prim.Shuffle([lhs, rhs], [tirx.const(lane, "int32") for lane in lanes])

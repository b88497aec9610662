"""Attention of one or two queries of a head over many keys, as when text is decoded.

Keys and values are read from memory once: a task is the heads that share them by some hundred of
the columns. Its loops: a block of keys, which stays in L1, by each of the heads, whose query is in
registers; softmax of each head over the task's columns alone; the values weighed for all heads at
once. Last, the parts of a head are brought to one greatest score and added up.
"""

from dataclasses import dataclass, replace
from typing import Any

from tvm import tirx
from tvm.ir.prim import expr as prim

from compiler.passes.cpu.families.attention.match import Attention
from compiler.passes.cpu.families.attention.softmax import softmax_row
from compiler.passes.cpu.shared.sharing import PARALLEL_WORK, extents_of, share_places
from compiler.targets.vector_unit import VectorUnit
from compiler.tir.building import (
    across,
    alloc,
    emit,
    fresh,
    let,
    let_all,
    serial,
    steps,
    store,
    tile,
    vectorized,
)
from compiler.tir.exprs import Expr, Table, as_int, const, load, nodes, rewrite, substitute
from compiler.tir.loops import PARALLEL_FLOPS, product
from compiler.tir.stages import Axis

COLUMNS = 256
"""Keys of a task: with their values, of 64 elements each, half of a small L2."""

FEW = 2
"""Queries of a head for which keys are read as they lie."""


@dataclass(frozen=True)
class _Group:
    """Heads that read the same keys: places `first` to `first + count` along the axis `head`.

    batch: the axes of the attention with groups in place of heads.
    """

    batch: tuple[Axis, ...]
    head: Axis | None
    count: int


@dataclass(frozen=True)
class _Parts:
    """What tasks leave of each head's row, by the row's number and the task's: the greatest score,
    the sum of powers, and the values weighed by them.
    """

    count: Expr
    greatest: Any
    totals: Any
    weighed: Any


def emit_few(attention: Attention, unit: VectorUnit) -> None:
    """Emit the attention of at most `FEW` queries of each head."""
    heads, m, n = (
        product(extents_of(attention.batch)),
        attention.row.extent,
        attention.column.extent,
    )
    group = group_of(attention)
    count = let("parts", tirx.max(tirx.ceildiv(n, COLUMNS), 1))
    rows = tirx.max(heads * m, 1)
    # Memory of all tasks: what one of them leaves is read by another thread.
    parts = _Parts(
        count,
        alloc([rows * count], "float32", "greatest", "global"),
        alloc([rows * count], "float32", "totals", "global"),
        alloc([rows * count * attention.head_width], "float32", "weighed", "global"),
    )
    # By parts as well as by groups: a single sequence has few groups, and all threads have to read.
    work = heads * m * n * (2 * (attention.head_depth + attention.head_width))
    for at, part in share_places(group.batch, count, work >= PARALLEL_FLOPS):
        _emit_part(attention, unit, group, at, part, parts)
    adding = rows * count * attention.head_width
    for at, row in share_places(attention.batch, m, adding >= PARALLEL_WORK):
        _emit_sum(attention, unit, {**at, attention.row.var: row}, parts)


def group_of(attention: Attention) -> _Group:
    """The heads that share keys and values: along the last axis, if both read the same place for
    some of its places in a row.
    """
    if not attention.batch:
        return _Group((), None, 1)
    *outer, head = attention.batch
    extent = as_int(head.extent)
    sizes = {
        size
        for read in (attention.key, attention.value)
        for size in _shared(read.indices[0], head.var, extent)
    }
    if len(sizes) != 1 or extent is None or extent % (size := sizes.pop()):
        return _Group(attention.batch, head, 1)
    return _Group((*outer, replace(head, extent=const(extent // size))), head, size)


def _shared(index: Expr, var: Any, extent: int | None) -> set[int]:
    """How many places of the axis in a row the index is the same for."""
    divided: set[int] = set()

    def quotient(node: Expr) -> Expr | None:
        if isinstance(node, prim.FloorDiv | prim.Div) and node.a.same_as(var):
            size = as_int(node.b)
            if size is not None and size > 0:
                divided.add(size)
                return const(0)
        return None

    left = rewrite(index, quotient)
    if any(node.same_as(var) for node in nodes(left)):
        return {1}
    return divided or ({extent} if extent else {1})


def _emit_part(
    attention: Attention, unit: VectorUnit, group: _Group, at: Table, part: Expr, parts: _Parts
) -> None:
    """The columns of one part for the heads of a group and all of their queries."""
    first = let("first", part * COLUMNS)
    count = let("count", tirx.min(COLUMNS, attention.column.extent - first))
    seen = _shifted(attention, first, count)
    lanes = _lanes(attention, unit)
    scores = alloc([group.count * COLUMNS], "float32", "scores", "global")
    # A second query finds the part's keys and values in L2, where the first one left them.
    with serial(attention.row.extent, "query") as query:
        place = {**at, attention.row.var: query}
        with serial(tirx.ceildiv(count, lanes), "block") as block, serial(group.count) as i:
            _scores(seen, group, place, i, (block * lanes, lanes), scores)
        with serial(group.count) as i:
            here = _at(group, place, i)
            index = let("index", _row(attention, here) * parts.count + part)
            softmax_row(seen, unit, here, scores, i * COLUMNS, parts.totals, index, parts.greatest)
        for start, heads in _row_tiles(group.count, attention, unit):
            _weigh(seen, unit, group, place, (start, heads), scores, part, parts)


def _shifted(attention: Attention, first: Expr, count: Expr) -> Attention:
    """The attention over `count` columns from `first` on, as columns from 0 on."""
    column = attention.column
    moved = {column.var: column.var + first}
    return replace(
        attention,
        column=replace(column, extent=count),
        key=substitute(attention.key, moved),
        value=substitute(attention.value, moved),
        changed=substitute(attention.changed, moved),
    )


def _at(group: _Group, place: Table, i: Expr | int) -> Table:
    """The place of head `i` of the group."""
    if group.head is None:
        return place
    return {**place, group.head.var: place[group.head.var] * group.count + i}


def _row(attention: Attention, at: Table) -> Expr:
    """The number of a head's query among all."""
    number: Expr = const(0)
    for axis in (*attention.batch, attention.row):
        number = number * axis.extent + at[axis.var]
    return number


def _lanes(attention: Attention, unit: VectorUnit) -> int:
    """Of the vectors that a query is cut into: as many as divide it."""
    lanes = unit.lanes(32)
    while attention.head_depth % lanes:
        lanes //= 2
    return lanes


def _scores(
    attention: Attention,
    group: _Group,
    place: Table,
    head: Expr,
    block: tuple[Expr, int],
    scores: Any,
) -> None:
    """scores[head, j] = query @ key j of a head of the group, for a block of keys, (first, count);
    beyond the last key it is the last one again.
    """
    first, lanes = block
    # Any head's place will do for a key: the first one's needs no division.
    at, keys = _at(group, place, head), _at(group, place, 0)
    # A block has as many keys as a vector has lanes, so that its scores are one vector.
    last = attention.column.extent - 1
    columns = [fresh(f"column{i}", tirx.min(first + i, last)) for i in range(lanes)]
    acc = alloc([lanes, lanes], "float32", "acc")
    for i in range(lanes):
        with vectorized(lanes) as lane:
            store(acc, 0, i, lane)
    query = alloc([lanes], "float32", "query")
    with serial(attention.head_depth // lanes, "k") as strip:
        with vectorized(lanes) as lane:
            depth = {attention.depth.var: strip * lanes + lane}
            store(query, substitute(attention.query, {**at, **depth}), lane)
        # Each key has an accumulator of its own, which hides how long a multiply-add takes.
        for i, column in enumerate(columns):
            with vectorized(lanes) as lane:
                depth = {attention.depth.var: strip * lanes + lane}
                key = substitute(attention.key, {**keys, attention.column.var: column, **depth})
                store(acc, load(acc, [i, lane]) + load(query, [lane]) * key, i, lane)
    sums = _sums([_vector(acc, i, lanes) for i in range(lanes)], lanes)
    to = head * COLUMNS + first
    where = prim.Ramp(to, const(1), lanes) if lanes > 1 else to
    emit(tirx.BufferStore(scores, sums, [where]))


def _vector(acc: Any, i: int, lanes: int) -> Expr:
    """Row i of [.., lanes]."""
    return load(acc, [const(i), prim.Ramp(const(0), const(1), lanes) if lanes > 1 else const(0)])


def _sums(vectors: list[Expr], lanes: int) -> Expr:
    """A vector of the sums over the lanes of each of `lanes` vectors.

    Halves of two vectors are added at once, then quarters of two of these, and so on: three
    operations for a sum, where halving each vector by itself takes eight.
    """
    part = lanes
    while part > 1:
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


def _row_tiles(rows: int, attention: Attention, unit: VectorUnit) -> list[tuple[int, int]]:
    """(first, count) of the heads whose values are summed up in registers together."""
    vectors = -(-_width(attention, unit) // unit.lanes(32))
    # Beside the accumulators, registers hold one row of values and the power in all lanes.
    most = max((unit.registers - vectors - 1) // vectors, 1)
    tiles = -(-rows // most)
    sizes = [rows // tiles + (i < rows % tiles) for i in range(tiles)]
    return [(sum(sizes[:i]), size) for i, size in enumerate(sizes)]


def _width(attention: Attention, unit: VectorUnit) -> int:
    """Columns of the values that are summed up together: two vectors, or what divides them."""
    width = 2 * unit.lanes(32)
    while attention.head_width % width:
        width //= 2
    return width


def _weigh(
    attention: Attention,
    unit: VectorUnit,
    group: _Group,
    place: Table,
    heads: tuple[int, int],
    scores: Any,
    part: Expr,
    parts: _Parts,
) -> None:
    """The values of the part's columns weighed by the powers of some heads."""
    first, rows = heads
    width = _width(attention, unit)
    lanes = min(width, unit.lanes(32))
    here = _at(group, place, 0)
    starts = [
        let(f"start{i}", (_row(attention, _at(group, place, first + i)) * parts.count + part))
        for i in range(rows)
    ]
    with serial(attention.head_width // width, "columns") as block:
        acc = alloc([rows, width], "float32", "acc")
        for i, lane in tile(rows, width, lanes):
            store(acc, 0, i, lane)
        # A row of values is loaded once and multiplied for all heads before the next one.
        for k in steps(attention.column.extent, unit.together):
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


def _emit_sum(attention: Attention, unit: VectorUnit, at: Table, parts: _Parts) -> None:
    """The result of a query: its parts added up, each by how far its greatest score is below that
    of all.
    """
    at = let_all(at)
    begin = let("begin", _row(attention, at) * parts.count)
    greatest = alloc([1], "float32", "greatest")
    total = alloc([1], "float32", "total")
    store(greatest, float("-inf"), 0)
    # Powers of a part are of its scores less its own greatest one.
    with serial(parts.count, "part") as part:
        store(greatest, tirx.max(load(greatest, [0]), load(parts.greatest, [begin + part])), 0)
    width = _width(attention, unit)
    lanes = min(width, unit.lanes(32))
    store(total, 0, 0)
    with serial(parts.count, "part") as part:
        # Kept in its place: it scales the part's values below.
        apart = load(parts.greatest, [begin + part]) - load(greatest, [0])
        store(parts.greatest, tirx.exp(apart), begin + part)
        scaled = load(parts.greatest, [begin + part]) * load(parts.totals, [begin + part])
        store(total, load(total, [0]) + scaled, 0)
    with serial(attention.head_width // width, "columns") as block:
        acc = alloc([width], "float32", "acc")
        for lane in across(width, lanes):
            store(acc, 0, lane)
        with serial(parts.count, "part") as part:
            for lane in across(width, lanes):
                start = (begin + part) * attention.head_width + block * width
                weighed = load(parts.weighed, [start + lane])
                scale = load(parts.greatest, [begin + part])
                store(acc, load(acc, [lane]) + weighed * scale, lane)
        for lane in across(width, lanes):
            place = {**at, attention.width.var: block * width + lane}
            result = load(acc, [lane]) / load(total, [0])
            store(attention.target.source, result, substitute(attention.target.indices[0], place))

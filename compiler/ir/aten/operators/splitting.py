"""Views of the parts of an axis: split, chunk, tensor_split, unbind."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

from compiler.ir.aten.lists import cut
from compiler.ir.aten.memory import Bounds, ListBox, Parts, Ref, Stack, Step
from compiler.ir.aten.node import Node
from compiler.ir.aten.registry import op
from compiler.ir.graph.builder import Builder
from compiler.ir.graph.values import Value
from compiler.ir.ops.nn import pad as nn_pad
from compiler.ir.ops.shape import layout
from compiler.ir.shapes import extents as ex
from compiler.ir.shapes.extents import Extent, spell
from compiler.ir.shapes.index_bounds import USUAL


def _pieces(b: Builder, node: Node, axis: int, sizes: Sequence[Extent]) -> list[Ref]:
    """Consecutive parts of an axis, each a view."""
    ends: list[Extent] = [0]
    for size in sizes:
        ends.append(b.facts.simplify(ex.add(ends[-1], size)))
    return [cut(node.memory, node.ref("self"), axis, *part) for part in pairwise(ends)]


@op("split", "split_with_sizes", "unsafe_split", "unsafe_split_with_sizes")
def split(b: Builder, node: Node) -> Any:
    """Parts of a size each, the last one smaller, or of given sizes."""
    x = node.value("self")
    axis = node.axis("dim", len(x.shape), 0)
    if "split_sizes" in node.names or isinstance(node.args[1], (tuple, ListBox)):
        sizes = node.sizes(node.names[1])
        b.same(ex.total(sizes), x.shape[axis], "the parts of a split do not add up to the axis")
        return _pieces(b, node, axis, sizes)
    size, extent = node.size("split_size"), b.facts.simplify(x.shape[axis])
    if size == 0 and isinstance(size, int):
        b.same(extent, 0, "an axis is split into parts of no elements")
        return _pieces(b, node, axis, [0])
    b.require(ex.greater(size, 0), "an axis is split into parts of no elements")
    size = _divisor(b, size)
    # Of an empty axis there is one part.
    count = _certain(b, ex.maximum(ex.ceildiv(extent, size), 1))
    if isinstance(count, int):
        return _even(b, node, axis, size, count)
    return Parts(node.ref("self"), axis, count, _steps(size), "fix the dim that is split")


def _divisor(b: Builder, number: Extent) -> Extent:
    """The number, and 1 in place of 0: what a failed check is about may be computed before it, and
    TVM's simplifier takes a maximum away where a Select is for other numbers.
    """
    if b.facts.bounds(number)[0] > 0:
        return number
    return b.symbol(ex.maximum(number, 1), "divisor")


def _certain(b: Builder, number: Extent) -> Extent:
    """The number simplified, an int where the facts leave it one value."""
    low, high = b.facts.bounds(number)
    return low if low == high else b.facts.simplify(number)


def _even(b: Builder, node: Node, axis: int, size: Extent, count: int) -> list[Ref]:
    """So many parts of a size, the last of which has the rest of the axis."""
    last = ex.sub(node.value("self").shape[axis], ex.mul(size, count - 1))
    return _pieces(b, node, axis, [*[size] * (count - 1), b.facts.simplify(last)])


def _steps(size: Extent) -> Bounds:
    """The bounds of parts of a size, of which the axis's end cuts the last one off."""
    return lambda index, count: (ex.mul(index, size), ex.mul(ex.add(index, 1), size))


@op("chunk", "unsafe_chunk")
def chunk(b: Builder, node: Node) -> Any:
    """At most so many parts of equal size, the last one smaller."""
    x, chunks = node.value("self"), node.int("chunks")
    if chunks < 1:
        node.fail(f"{chunks} chunks of an axis", reason="attribute")
    axis = node.axis("dim", len(x.shape), 0)
    extent = b.facts.simplify(x.shape[axis])
    if b.facts.same(ex.floormod(extent, chunks), 0) is True:
        return _pieces(b, node, axis, [b.facts.simplify(ex.floordiv(extent, chunks))] * chunks)
    size = b.facts.simplify(ex.ceildiv(extent, chunks))
    certain = _count_chunks(chunks, *b.facts.bounds(extent))
    if certain is not None:
        return _even(b, node, axis, size, certain)
    # An axis without elements has as many chunks as any.
    filled = ex.ceildiv(extent, _divisor(b, size))
    empty = ex.mul(ex.maximum(ex.sub(1, extent), 0), chunks)
    count = b.facts.simplify(ex.add(filled, empty))
    hint = (
        f"declare {spell(extent)} to be at least {(chunks - 1) ** 2 + 1}, which always has "
        f"{chunks} chunks, or a multiple of {chunks}"
    )
    return Parts(node.ref("self"), axis, count, _steps(size), hint)


_FEW = 1 << 16
"""So many extents are tried one by one."""


def _count_chunks(chunks: int, low: int, high: int | None) -> int | None:
    """How many chunks every extent of a range has; None where that differs.

    Above (chunks - 1)^2 they are as many as asked for: chunks have s elements, at most
    (n + chunks - 1) / chunks, so that all but the last have (chunks - 1) * s < n.
    """
    enough = (chunks - 1) ** 2 + 1
    high = enough if high is None else min(high, enough)
    if high - low > _FEW:
        return None
    counts = {
        -(-extent // -(-extent // chunks)) if extent else chunks
        for extent in range(min(low, high), high + 1)
    }
    return counts.pop() if len(counts) == 1 else None


@op("hsplit", "vsplit", "dsplit")
def split_along(b: Builder, node: Node) -> Any:
    """tensor_split of the second axis, the first or the third; of a vector, of its only one."""
    rank = len(node.value("self").shape)
    axis = {"h": min(1, rank - 1), "v": 0, "d": 2}[node.kind.removeprefix("aten::")[0]]
    return _split_at(b, node, node.as_axis(axis, rank))


@op("split_copy", "split_with_sizes_copy")
def split_copy(b: Builder, node: Node) -> Any:
    """`split` into copies."""
    return _copy_parts(node, split(b, node))


def _copy_parts(node: Node, parts: Any) -> Any:
    """The parts of a list as tensors of their own."""
    if isinstance(parts, Parts):
        return replace(parts, source=node.memory.ref(node.memory.read(parts.source)))
    return parts if isinstance(parts, Stack) else [node.memory.read(part) for part in parts]


@op("unbind_copy")
def unbind_copy(b: Builder, node: Node) -> Any:
    """`unbind` into copies."""
    return _copy_parts(node, unbind(b, node))


@op("_chunk_cat")
def chunk_cat(b: Builder, node: Node) -> Value:
    """Tensors padded by zeros to a multiple of num_chunks along an axis, cut there, and joined
    chunk by chunk.
    """
    tensors, count = node.values("tensors"), node.int("num_chunks")
    axis = node.axis("dim", len(tensors[0].shape))
    parts = []
    for value in tensors:
        length = b.facts.simplify(ex.mul(ex.ceildiv(value.shape[axis], count), count))
        missing = b.facts.simplify(ex.sub(length, value.shape[axis]))
        after = [missing if i == axis else 0 for i in range(len(value.shape))]
        padded = nn_pad.pad_zero(b, value, [0] * len(after), after)
        rest = b.facts.simplify(ex.prod([ex.floordiv(length, count), *value.shape[axis + 1 :]]))
        parts.append(layout.reshape(b, padded, [*value.shape[:axis], count, rest]))
    return layout.concat(b, parts, axis + 1)


@op("tensor_split")
def tensor_split(b: Builder, node: Node) -> Any:
    """So many parts, the first ones larger by one where they do not divide the axis, or parts that
    begin at indices; either may stand in a tensor.
    """
    axis = node.axis("dim", len(node.value("self").shape), 0)
    name = "tensor_indices_or_sections"
    if name not in node.names:
        return _split_at(b, node, axis)
    numbers = node.value(name)
    if not numbers.shape:
        return _balanced(b, node, axis, node.size(name))
    node.limit(name, -USUAL)
    bounds = [0, *b.known_positions(numbers, name).scalars(), node.value("self").shape[axis]]
    return [cut(node.memory, node.ref("self"), axis, *part) for part in pairwise(bounds)]


def _split_at(b: Builder, node: Node, axis: int) -> Any:
    if "sections" in node.names:
        return _balanced(b, node, axis, node.size("sections"))
    extent = b.facts.simplify(node.value("self").shape[axis])
    starts = [0, *(_boundary(index, extent) for index in node.ints("indices"))]
    ends = [ex.maximum(start, stop) for start, stop in pairwise([*starts, extent])]
    return [
        cut(node.memory, node.ref("self"), axis, *map(b.facts.simplify, part))
        for part in zip(starts, ends, strict=True)
    ]


def _balanced(b: Builder, node: Node, axis: int, count: Extent) -> Any:
    """So many parts, of which the first extent % count are longer by one."""
    extent = b.facts.simplify(node.value("self").shape[axis])
    b.require(ex.greater(count, 0), f"{spell(count)} parts of an axis")
    if isinstance(count, int):
        longer = (ex.add(extent, count - 1 - index) for index in range(count))
        sizes = [b.facts.simplify(ex.floordiv(size, count)) for size in longer]
        return _pieces(b, node, axis, sizes)
    count = _divisor(b, count)

    def start(index: Extent, count: Extent) -> Extent:
        size, longer = ex.floordiv(extent, count), ex.floormod(extent, count)
        return ex.add(ex.mul(index, size), ex.minimum(index, longer))

    def bounds(index: Extent, count: Extent) -> tuple[Extent, Extent]:
        return start(index, count), start(ex.add(index, 1), count)

    hint = "give the number of parts as a constant"
    return Parts(node.ref("self"), axis, count, bounds, hint)


def _boundary(index: int, extent: Extent) -> Extent:
    """An index into an axis as slices take it: from the end where negative, and within the axis."""
    return ex.maximum(ex.add(extent, index), 0) if index < 0 else ex.minimum(index, extent)


@op("unbind")
def unbind(b: Builder, node: Node) -> Any:
    """One tensor for each index of an axis."""
    x = node.value("self")
    axis = node.axis("dim", len(x.shape), 0)
    extent = b.facts.simplify(x.shape[axis])
    if not isinstance(extent, int):
        node.memory.hold(node.ref("self"))
        return Stack(layout.transpose(b, x, [axis, *(i for i in range(len(x.shape)) if i != axis)]))
    source, parts = node.ref("self"), []
    for index in range(extent):
        step = _row(axis, index)
        parts.append(node.memory.view(source, step(b, x), step))
    return parts


def _row(axis: int, index: int) -> Step:
    return lambda b, x: layout.squeeze(
        b, layout.strided_slice(b, x, axis, index, index + 1, 1), [axis]
    )

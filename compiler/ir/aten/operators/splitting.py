"""Views of the parts of an axis: split, chunk, tensor_split, unbind."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from compiler.ir.aten.memory import ListBox, Ref, Stack, Step
from compiler.ir.aten.node import Node
from compiler.ir.aten.registry import op
from compiler.ir.graph.builder import Builder
from compiler.ir.graph.values import Value
from compiler.ir.ops.nn import pad as nn_pad
from compiler.ir.ops.shape import layout
from compiler.ir.shapes import extents as ex
from compiler.ir.shapes.extents import Extent


def _pieces(b: Builder, node: Node, axis: int, sizes: Sequence[Extent]) -> list[Ref]:
    """Consecutive parts of an axis, each a view."""
    source, start, parts = node.ref("self"), 0, []
    for size in sizes:
        stop = b.facts.simplify(ex.add(start, size))
        step = _part(axis, start, stop)
        parts.append(node.memory.view(source, step(b, node.memory.read(source)), step))
        start = stop
    return parts


def _part(axis: int, start: Extent, stop: Extent) -> Step:
    return lambda b, x: layout.strided_slice(b, x, axis, start, stop, 1)


@op("split", "split_with_sizes", "unsafe_split", "unsafe_split_with_sizes")
def split(b: Builder, node: Node) -> list[Ref]:
    """Parts of a size each, the last one smaller, or of given sizes."""
    x = node.value("self")
    axis = node.axis("dim", len(x.shape), 0)
    if "split_sizes" in node.names or isinstance(node.args[1], (tuple, ListBox)):
        sizes = node.sizes(node.names[1])
        b.same(ex.total(sizes), x.shape[axis], "the parts of a split do not add up to the axis")
        return _pieces(b, node, axis, sizes)
    return _even(b, node, axis, node.size("split_size"))


def _even(b: Builder, node: Node, axis: int, size: Extent) -> list[Ref]:
    extent = node.value("self").shape[axis]
    count = b.facts.simplify(ex.ceildiv(extent, size))
    if not isinstance(count, int):
        node.fail(
            "the number of parts is known only at run time",
            reason="data_dependent",
            hint="fix the dim that is split",
        )
    last = b.facts.simplify(ex.sub(extent, ex.mul(size, count - 1)))
    return _pieces(b, node, axis, [*[size] * (count - 1), last] if count else [0])


@op("chunk", "unsafe_chunk")
def chunk(b: Builder, node: Node) -> list[Ref]:
    """At most so many parts of equal size, the last one smaller."""
    x, chunks = node.value("self"), node.int("chunks")
    axis = node.axis("dim", len(x.shape), 0)
    extent = b.facts.simplify(x.shape[axis])
    if isinstance(extent, int):
        return (
            _even(b, node, axis, -(-extent // chunks))
            if extent
            else _pieces(b, node, axis, [0] * chunks)
        )
    if b.facts.same(ex.floormod(extent, chunks), 0) is True:
        return _pieces(b, node, axis, [b.facts.simplify(ex.floordiv(extent, chunks))] * chunks)
    node.fail(
        "chunks of an axis that may not divide by them leave their number open",
        reason="data_dependent",
        hint="declare the dim as a multiple of the chunks",
    )


@op("hsplit", "vsplit", "dsplit")
def split_along(b: Builder, node: Node) -> list[Ref]:
    """tensor_split of the second axis, the first or the third; of a vector, of its only one."""
    rank = len(node.value("self").shape)
    axis = {"h": min(1, rank - 1), "v": 0, "d": 2}[node.kind.removeprefix("aten::")[0]]
    return _split_at(b, node, node.as_axis(axis, rank))


@op("split_copy", "split_with_sizes_copy")
def split_copy(b: Builder, node: Node) -> list[Value]:
    """`split` into copies."""
    return [node.memory.read(part) for part in split(b, node)]


@op("unbind_copy")
def unbind_copy(b: Builder, node: Node) -> Any:
    """`unbind` into copies."""
    parts = unbind(b, node)
    return parts if isinstance(parts, Stack) else [node.memory.read(part) for part in parts]


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
def tensor_split(b: Builder, node: Node) -> list[Ref]:
    """So many parts, the first ones larger by one where they do not divide the axis, or parts that
    begin at indices.
    """
    return _split_at(b, node, node.axis("dim", len(node.value("self").shape), 0))


def _split_at(b: Builder, node: Node, axis: int) -> list[Ref]:
    x = node.value("self")
    extent = b.facts.simplify(x.shape[axis])
    if "sections" in node.names and isinstance(extent, int):
        small, more = divmod(extent, node.int("sections"))
        return _pieces(
            b, node, axis, [small + (index < more) for index in range(node.int("sections"))]
        )
    if (
        "sections" in node.names
        and b.facts.same(ex.floormod(extent, node.int("sections")), 0) is True
    ):
        return _pieces(
            b,
            node,
            axis,
            [b.facts.simplify(ex.floordiv(extent, node.int("sections")))] * node.int("sections"),
        )
    if "indices" not in node.names or not isinstance(extent, int):
        node.fail(
            "parts of an axis that only run time knows are not supported",
            reason="data_dependent",
            hint="fix the dim that is split",
        )
    boundaries = [
        0,
        *(
            min(max(index + extent if index < 0 else index, 0), extent)
            for index in node.ints("indices")
        ),
        extent,
    ]
    return _pieces(b, node, axis, [max(stop - start, 0) for start, stop in pairwise(boundaries)])


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

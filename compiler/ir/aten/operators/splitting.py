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
    ends: list[Extent] = [0]
    for size in sizes:
        ends.append(b.facts.simplify(ex.add(ends[-1], size)))
    return [_view(b, node, axis, start, stop) for start, stop in pairwise(ends)]


def _view(b: Builder, node: Node, axis: int, start: Extent, stop: Extent) -> Ref:
    source, step = node.ref("self"), _part(axis, start, stop)
    return node.memory.view(source, step(b, node.memory.read(source)), step)


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
    extent = b.facts.simplify(node.value("self").shape[axis])
    count = b.facts.simplify(ex.ceildiv(extent, size))
    if not isinstance(count, int):
        taken = _unpacked(node)
        if taken is None:
            node.fail(
                "the number of parts is known only at run time",
                reason="data_dependent",
                hint="fix the dim that is split",
            )
        return _parts(b, node, axis, size, taken)
    last = b.facts.simplify(ex.sub(extent, ex.mul(size, count - 1)))
    return _pieces(b, node, axis, [*[size] * (count - 1), last] if count else [0])


def _unpacked(node: Node) -> int | None:
    """How many tensors the program takes a list apart into; None where it does something else."""
    (output,) = node.raw.outputs()
    # A program of torch.export names the items.
    if items := getattr(output, "items", ()):
        return len(items)
    users = [use.user for use in output.uses()]
    if not users or any(user.kind() != "prim::ListUnpack" for user in users):
        return None
    return len(list(users[0].outputs()))


def _parts(b: Builder, node: Node, axis: int, size: Extent, count: int) -> list[Ref]:
    """Parts of a size of an axis, the last one smaller, of which a run checks that there are
    `count`.
    """
    extent = b.facts.simplify(node.value("self").shape[axis])
    last = b.facts.simplify(ex.sub(extent, ex.mul(size, count - 1)))
    message = f"the model takes an axis of {extent} in {count} parts"
    b.require(ex.greater_equal(last, 1), message)
    b.require(ex.less_equal(last, size), message)
    return _pieces(b, node, axis, [*[size] * (count - 1), last])


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
    count = _unpacked(node)
    if count is None:
        node.fail(
            "chunks of an axis that may not divide by them leave their number open",
            reason="data_dependent",
            hint="declare the dim as a multiple of the chunks",
        )
    return _parts(b, node, axis, b.facts.simplify(ex.ceildiv(extent, chunks)), count)


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
    extent = b.facts.simplify(node.value("self").shape[axis])
    if "sections" in node.names:
        count = node.int("sections")
        if count < 1:
            node.fail(f"{count} parts of an axis", reason="attribute")
        # The first extent % count parts are longer by one.
        longer = (ex.add(extent, count - 1 - index) for index in range(count))
        sizes = [b.facts.simplify(ex.floordiv(size, count)) for size in longer]
        return _pieces(b, node, axis, sizes)
    if "indices" not in node.names:
        node.fail(
            "parts of an axis that begin at the numbers of a tensor are not supported",
            reason="data_dependent",
            hint="give the indices as numbers",
        )
    starts = [0, *(_boundary(index, extent) for index in node.ints("indices"))]
    ends = [ex.maximum(start, stop) for start, stop in pairwise([*starts, extent])]
    return [
        _view(b, node, axis, *map(b.facts.simplify, part))
        for part in zip(starts, ends, strict=True)
    ]


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

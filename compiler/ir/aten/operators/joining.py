"""Operators that join, repeat, mirror and pad tensors."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from tvm import te, tirx

from compiler.ir.aten.dtypes import result_type
from compiler.ir.aten.lists import stack_parts
from compiler.ir.aten.memory import ListBox, Parts, Ref, Stack
from compiler.ir.aten.node import Node
from compiler.ir.aten.operands import operand
from compiler.ir.aten.registry import op
from compiler.ir.graph.builder import Builder
from compiler.ir.graph.indices import Indices
from compiler.ir.graph.values import Known, Value
from compiler.ir.ops.math import reduce as rd
from compiler.ir.ops.math import scan
from compiler.ir.ops.nn import pad as nn_pad
from compiler.ir.ops.pointwise import broadcast
from compiler.ir.ops.pointwise import elementwise as ew
from compiler.ir.ops.shape import indexing, layout
from compiler.ir.shapes import extents as ex
from compiler.ir.shapes.extents import Extent
from compiler.ir.shapes.facts import UNBOUNDED
from compiler.ir.shapes.index_bounds import USUAL


def _list_of(node: Node, name: str) -> Any:
    """The content of a list."""
    item = node.get(name)
    return node.memory.content(item) if isinstance(item, ListBox) else item


def _stack_of(node: Node, name: str) -> Stack | None:
    """The list as a stack where only run time knows its length."""
    content = _list_of(node, name)
    if isinstance(content, Parts):
        return stack_parts(node.memory, content)
    return content if isinstance(content, Stack) else None


def promote(b: Builder, values: Sequence[Value]) -> list[Value]:
    """Tensors in their common dtype."""
    dtype = result_type([(value.dtype, len(value.shape)) for value in values], [])
    return [ew.cast(b, value, dtype) for value in values]


@op("cat", "concat", "concatenate")
def cat(b: Builder, node: Node) -> Value:
    """Tensors joined along an axis; empty vectors do not count."""
    parts = _list_of(node, "tensors")
    if isinstance(parts, Parts):
        source = node.memory.read(parts.source)
        if node.axis("dim", len(source.shape), 0) == parts.axis:
            return source
    stack = _stack_of(node, "tensors")
    if stack is not None:
        return _joined_stack(b, node, stack.tensor)
    values = promote(b, node.values("tensors"))
    rank = max(len(value.shape) for value in values)
    retained = [
        value
        for value in values
        if len(value.shape) == rank or b.facts.same(value.shape[0], 0) is not True
    ] or values[:1]
    return layout.concat(b, retained, node.axis("dim", rank, 0))


def _joined_stack(b: Builder, node: Node, tensor: Value) -> Value:
    """The items of a stack one behind the other along an axis."""
    rank = len(tensor.shape) - 1
    axis = node.axis("dim", rank, 0)
    forward = [*range(1, axis + 1), 0, *range(axis + 1, rank + 1)]
    moved = layout.transpose(b, tensor, forward)
    merged = b.facts.simplify(ex.mul(moved.shape[axis], moved.shape[axis + 1]))
    return layout.reshape(b, moved, [*moved.shape[:axis], merged, *moved.shape[axis + 2 :]])


@op("stack")
def stack(b: Builder, node: Node) -> Value:
    """Tensors joined along a new axis."""
    items = _stack_of(node, "tensors")
    if items is not None:
        rank = len(items.tensor.shape)
        axis = node.axis("dim", rank, 0)
        return layout.transpose(b, items.tensor, [*range(1, axis + 1), 0, *range(axis + 1, rank)])
    values = promote(b, node.values("tensors"))
    axis = node.axis("dim", len(values[0].shape) + 1, 0)
    return layout.concat(b, [layout.unsqueeze(b, value, [axis]) for value in values], axis)


@op("hstack")
def hstack(b: Builder, node: Node) -> Value:
    """Tensors joined along the second axis, vectors along the first."""
    values = promote(b, node.values("tensors"))
    values = [layout.reshape(b, value, [1]) if not value.shape else value for value in values]
    return layout.concat(b, values, 0 if len(values[0].shape) == 1 else 1)


@op("vstack", "row_stack")
def vstack(b: Builder, node: Node) -> Value:
    """Tensors joined along the first axis, vectors as rows."""
    values = [
        layout.unsqueeze(b, value, [0]) if len(value.shape) == 1 else value
        for value in promote(b, node.values("tensors"))
    ]
    return layout.concat(b, values, 0)


@op("repeat", "tile")
def repeat(b: Builder, node: Node) -> Value:
    """Self repeated so many times along each axis, axes of 1 added in front."""
    x = node.value("self")
    counts = node.sizes("repeats" if "repeats" in node.names else "dims")
    counts = [1] * (len(x.shape) - len(counts)) + list(counts)
    if len(counts) > len(x.shape):
        x = layout.reshape(b, x, [*[1] * (len(counts) - len(x.shape)), *x.shape])
    return indexing.tile(b, x, counts) if counts else x


@op("repeat_interleave")
def repeat_interleave(b: Builder, node: Node) -> Value:
    """Each element repeated in place along an axis, of the flattened tensor without one."""
    if isinstance(node.get("repeats"), Ref):
        return _spread_unevenly(b, node)
    x, count = node.value("self"), node.size("repeats")
    if not node.has("dim"):
        x = layout.reshape(b, x, [b.facts.simplify(ex.prod(x.shape))])
    axis = node.axis("dim", len(x.shape)) if node.has("dim") else 0
    spread = broadcast.expand(
        b, layout.unsqueeze(b, x, [axis + 1]), [*x.shape[: axis + 1], count, *x.shape[axis + 1 :]]
    )
    merged = b.facts.simplify(ex.mul(x.shape[axis], count))
    return layout.reshape(b, spread, [*x.shape[:axis], merged, *x.shape[axis + 1 :]])


def _spread_unevenly(b: Builder, node: Node) -> Value:
    """Repeat each element as often as a vector says; without elements, their indices."""
    repeats = ew.cast(b, node.value("repeats"), "int64")
    if "self" not in node.names:
        return _sources(b, repeats)
    x = node.value("self")
    axis = node.axis("dim", len(x.shape)) if node.has("dim") else 0
    if not node.has("dim"):
        x = layout.reshape(b, x, [b.facts.simplify(ex.prod(x.shape))])
    if ex.prod(repeats.shape) == 1:
        repeats = broadcast.expand(b, layout.reshape(b, repeats, [1]), [x.shape[axis]])
    b.same(repeats.shape[0], x.shape[axis], "repeats are as many as the axis is long")
    sources = Indices.from_program(_sources(b, repeats), x.shape[axis])
    return layout.take(b, x, sources, axis)


def _sources(b: Builder, repeats: Value) -> Value:
    """The index of the element that each place of the result comes from."""
    indexing.check_within(b, repeats, 0, UNBOUNDED, "a number of repeats is negative or too large")
    if isinstance(repeats, Known) and not repeats.symbolic:
        return Known.of(np.repeat(np.arange(repeats.shape[0]), repeats.data), "int64")
    ends = scan.cumulate(b, repeats, 0, lambda p, q: p + q, 0, False, False)
    count = b.known_extents(rd.reduce(b, repeats, "sum", [0], False), "repeated").scalars()[0]

    def compute(data: te.Tensor) -> te.Tensor:
        taken = te.reduce_axis((tirx.const(0, "int64"), data.shape[0]), name="taken")
        return te.compute(
            [ex.prim(count)],
            lambda i: te.sum((data(taken) <= i).astype("int64"), axis=taken),
            name="sources",
        )

    return b.te(compute, ends, name="sources")


@op("column_stack", "dstack")
def stacked_along(b: Builder, node: Node) -> Value:
    """Tensors joined along the second axis, or the third, after axes of 1 are added to those of too
    few.
    """
    axis = 1 if node.kind == "aten::column_stack" else 2
    values = [_deep(b, value, axis) for value in promote(b, node.values("tensors"))]
    return layout.concat(b, values, axis)


def _deep(b: Builder, x: Value, axis: int) -> Value:
    if len(x.shape) > axis:
        return x
    if axis == 1:
        return layout.reshape(b, x, [x.shape[0] if x.shape else 1, 1])
    return layout.reshape(b, x, [1, *x.shape, 1] if len(x.shape) < 2 else [*x.shape, 1])


@op("fliplr", "flipud")
def flip_side(b: Builder, node: Node) -> Value:
    """The second or the first axis reversed."""
    return layout.strided_slice(
        b, node.value("self"), 1 if node.kind == "aten::fliplr" else 0, -1, -layout.INT64_MAX, -1
    )


@op("flip")
def flip(b: Builder, node: Node) -> Value:
    """Axes reversed."""
    x = node.value("self")
    for axis in node.axes("dims", len(x.shape)) or []:
        x = layout.strided_slice(b, x, axis, -1, -layout.INT64_MAX, -1)
    return x


@op("roll")
def roll(b: Builder, node: Node) -> Value:
    """Elements moved along axes, those that leave come in at the other end."""
    x = node.value("self")
    node.limit("shifts", -USUAL)
    shape, shifts = x.shape, node.extents("shifts")
    axes = node.axes("dims", len(shape))
    if axes is None:
        x, axes = layout.reshape(b, x, [b.facts.simplify(ex.prod(shape))]), [0]
    for axis, shift in zip(axes, shifts, strict=True):
        extent = x.shape[axis]
        divisor = (
            extent if b.facts.decide(ex.greater_equal(extent, 1)) is True else ex.maximum(extent, 1)
        )
        split = b.facts.simplify(ex.sub(extent, ex.floormod(shift, divisor)))
        parts = [
            layout.strided_slice(b, x, axis, split, extent, 1),
            layout.strided_slice(b, x, axis, 0, split, 1),
        ]
        x = b.adopt(b.tensor(layout.concat(b, parts, axis)).expr, x.shape)
    return layout.reshape(b, x, shape)


_MODES = {
    "constant": nn_pad.PadMode.CONSTANT,
    "reflect": nn_pad.PadMode.REFLECT,
    "replicate": nn_pad.PadMode.EDGE,
    "circular": nn_pad.PadMode.WRAP,
}


@op("pad", "constant_pad_nd")
def pad(b: Builder, node: Node) -> Value:
    """Padding of the last axes, last one first."""
    x = node.value("self")
    mode = node.get("mode", "constant")
    value = node.get("value", None)
    fill = operand(b, node, 0 if value is None else value, x.dtype) if mode == "constant" else None
    return pad_axes(b, x, node.extents("pad"), _MODES[mode], fill)


def pad_axes(
    b: Builder, x: Value, pads: Sequence[Extent], mode: nn_pad.PadMode, fill: Value | None
) -> Value:
    """`pads` are pairs of before and after, the last axis first."""
    rank = len(x.shape)
    before: list[Extent] = [0] * rank
    after: list[Extent] = [0] * rank
    for index in range(len(pads) // 2):
        before[rank - 1 - index], after[rank - 1 - index] = pads[2 * index], pads[2 * index + 1]
    if mode is not nn_pad.PadMode.CONSTANT:
        for axis in range(rank):
            limit = ex.sub(x.shape[axis], 1) if mode is nn_pad.PadMode.REFLECT else x.shape[axis]
            for size in (before[axis], after[axis]):
                if b.facts.same(size, 0) is not True and mode is not nn_pad.PadMode.EDGE:
                    b.require(
                        ex.less_equal(size, limit),
                        f"{mode} padding of {size} needs a longer axis than {x.shape[axis]}",
                    )
    return nn_pad.pad(b, x, before, after, mode, fill)


def _old_pad(mode: nn_pad.PadMode, *names: str) -> None:
    @op(*names)
    def handler(b: Builder, node: Node) -> Value:
        return pad_axes(b, node.value("self"), node.extents("padding"), mode, None)

    handler.__doc__ = f"Padding of the last axes, {mode}."


_old_pad(nn_pad.PadMode.REFLECT, "reflection_pad1d", "reflection_pad2d", "reflection_pad3d")
_old_pad(nn_pad.PadMode.EDGE, "replication_pad1d", "replication_pad2d", "replication_pad3d")


@op("tril")
def tril(b: Builder, node: Node) -> Value:
    """The lower triangle, zeros elsewhere."""
    return _triangle(b, node, upper=False)


@op("triu")
def triu(b: Builder, node: Node) -> Value:
    """The upper triangle, zeros elsewhere."""
    return _triangle(b, node, upper=True)


def _triangle(b: Builder, node: Node, upper: bool) -> Value:
    x = node.value("self")
    if x.dtype == "bool":
        # TVM selects between booleans as bytes.
        return ew.cast(
            b, indexing.triangle(b, ew.cast(b, x, "int8"), upper, node.position("diagonal")), "bool"
        )
    return indexing.triangle(b, x, upper, node.position("diagonal"))


@op("meshgrid")
def meshgrid(b: Builder, node: Node) -> list[Ref]:
    """Vectors spread over a grid, an axis each; indexing `xy` exchanges the first two axes."""
    values = node.values("tensors")
    extents = [value.shape[0] if value.shape else 1 for value in values]
    order = list(range(len(values)))
    if node.get("indexing", "ij") == "xy" and len(values) > 1:
        order[:2] = [1, 0]
    shape = [extents[i] for i in order]
    grids = []
    for k, value in enumerate(values):
        axis = order.index(k)
        column = layout.reshape(
            b, value, [extents[k] if j == axis else 1 for j in range(len(values))]
        )
        grids.append(_shared(node, k, broadcast.expand(b, column, shape)))
    return grids


def _shared(node: Node, index: int, value: Value) -> Ref:
    """A view of one of `tensors` that overlaps."""
    view = node.memory.relate(node.items("tensors")[index], value)
    view.writable = False
    return view


@op("broadcast_tensors")
def broadcast_tensors(b: Builder, node: Node) -> list[Ref]:
    """Tensors brought to their common shape."""
    values = node.values("tensors")
    shape = broadcast.joined_shape(b, *(value.shape for value in values))
    return [
        _shared(node, index, broadcast.expand(b, value, shape))
        for index, value in enumerate(values)
    ]


@op("pixel_shuffle")
def pixel_shuffle(b: Builder, node: Node) -> Value:
    """[.., C*r*r, H, W] to [.., C, H*r, W*r]."""
    x, r = node.value("self"), node.int("upscale_factor")
    *lead, channels, height, width = x.shape
    depth = b.facts.simplify(ex.floordiv(channels, r * r))
    rank = len(lead)
    split = layout.reshape(b, x, [*lead, depth, r, r, height, width])
    moved = layout.transpose(b, split, [*range(rank), rank, rank + 3, rank + 1, rank + 4, rank + 2])
    return layout.reshape(
        b,
        moved,
        [*lead, depth, b.facts.simplify(ex.mul(height, r)), b.facts.simplify(ex.mul(width, r))],
    )


@op("pixel_unshuffle")
def pixel_unshuffle(b: Builder, node: Node) -> Value:
    """[.., C, H*r, W*r] to [.., C*r*r, H, W]."""
    x, r = node.value("self"), node.int("downscale_factor")
    *lead, channels, height, width = x.shape
    h, w = (b.facts.simplify(ex.floordiv(extent, r)) for extent in (height, width))
    rank = len(lead)
    split = layout.reshape(b, x, [*lead, channels, h, r, w, r])
    moved = layout.transpose(b, split, [*range(rank), rank, rank + 2, rank + 4, rank + 1, rank + 3])
    return layout.reshape(b, moved, [*lead, b.facts.simplify(ex.mul(channels, r * r)), h, w])


@op("channel_shuffle")
def channel_shuffle(b: Builder, node: Node) -> Value:
    """Channels of [N, C, ..] dealt out over groups."""
    x, groups = node.value("self"), node.int("groups")
    depth = b.facts.simplify(ex.floordiv(x.shape[1], groups))
    split = layout.reshape(b, x, [x.shape[0], groups, depth, *x.shape[2:]])
    return layout.reshape(
        b, layout.transpose(b, split, [0, 2, 1, *range(3, len(split.shape))]), x.shape
    )


@op("diff")
def diff(b: Builder, node: Node) -> Value:
    """Differences of neighbours along an axis, after what is given to stand before and behind."""
    x = node.value("self")
    axis = node.axis("dim", len(x.shape))
    parts = [node.optional("prepend"), x, node.optional("append")]
    x = layout.concat(b, promote(b, [part for part in parts if part is not None]), axis)
    for _ in range(node.int("n")):
        later = layout.strided_slice(b, x, axis, 1, layout.INT64_MAX, 1)
        earlier = layout.strided_slice(b, x, axis, 0, -1, 1)
        if x.dtype == "bool":
            x = ew.compare(b, later, earlier, "not_equal")
        else:
            x = ew.subtract(
                b,
                later,
                b.adopt(b.tensor(earlier).expr, later.shape)
                if not isinstance(earlier, Known)
                else earlier,
            )
    return x

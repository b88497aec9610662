"""Reading and writing at computed positions, and embedding."""

from __future__ import annotations

from typing import Any

import numpy as np
from tvm import te, tirx

from compiler.ir.aten.algebra import Array, argument
from compiler.ir.aten.node import Node
from compiler.ir.aten.operands import operand, pair
from compiler.ir.aten.operators.comparison import negate
from compiler.ir.aten.registry import op
from compiler.ir.graph.builder import Builder
from compiler.ir.graph.values import Known, Value
from compiler.ir.ops.math import reduce as rd
from compiler.ir.ops.pointwise import broadcast
from compiler.ir.ops.pointwise import elementwise as ew
from compiler.ir.ops.shape import indexing as ix
from compiler.ir.ops.shape import layout, selecting
from compiler.ir.shapes import extents as ex
from compiler.ir.shapes.extents import Extent
from compiler.ir.shapes.index_bounds import Limit
from compiler.ir.shapes.limits import end_of


def indexes(b: Builder, node: Node, name: str, extent: Extent) -> None:
    """Note that an argument holds indices into an axis of this extent."""
    limit = Limit(0, end_of(b.facts, extent, -1))
    node.scope.model.indexed.append((list(node.raw.inputs())[node.names.index(name)], limit))


@op("embedding")
def embedding(b: Builder, node: Node) -> Value:
    """Rows of the weight at indices."""
    weight, indices = node.value("weight"), node.value("indices")
    indexes(b, node, "indices", weight.shape[0])
    return layout.take(b, weight, ix.check(b, indices, weight.shape[0]), 0)


@op("index_select")
def index_select(b: Builder, node: Node) -> Value:
    """Slices along an axis at a vector of indices."""
    x, index = node.value("self"), node.value("index")
    if not x.shape:
        return x
    axis = node.axis("dim", len(x.shape))
    indexes(b, node, "index", x.shape[axis])
    vector = layout.reshape(b, index, [1]) if not index.shape else index
    return layout.take(b, x, ix.check(b, vector, x.shape[axis]), axis)


@op("gather", "take_along_dim")
def gather(b: Builder, node: Node) -> Value:
    """Elements along an axis at indices of the result's shape."""
    name = "index" if "index" in node.names else "indices"
    x, index = node.value("self"), node.value(name)
    flat = node.kind == "aten::take_along_dim" and node.get("dim", None) is None
    if flat:
        x, index = (layout.reshape(b, v, [b.facts.simplify(ex.prod(v.shape))]) for v in (x, index))
    axis = 0 if flat else node.axis("dim", len(x.shape))
    if not x.shape:
        return x
    indexes(b, node, name, x.shape[axis])
    if node.kind == "aten::take_along_dim" and not flat:
        x, index = _along(b, x, _wrapped(b, index, x.shape[axis]), axis)
    return ix.gather_elements(b, x, index, axis)


def _wrapped(b: Builder, index: Value, extent: Extent) -> Value:
    """Indices modulo the axis, as torch's take_along_dim takes them."""
    size = ex.prim(ex.maximum(extent, 1))

    def compute(data: te.Tensor) -> te.Tensor:
        def element(*i: Any) -> Any:
            return tirx.floormod(data(*i).astype("int64"), size)

        return te.compute(data.shape, element, name="wrapped")

    return b.te(compute, index, name="wrapped")


def _along(b: Builder, x: Value, index: Value, axis: int) -> tuple[Value, Value]:
    """Both broadcast to one another on every other axis."""
    shapes = [
        [1 if position == axis else extent for position, extent in enumerate(value.shape)]
        for value in (x, index)
    ]
    joined = broadcast.joined_shape(b, *shapes)
    expanded = [
        broadcast.expand(b, v, [*joined[:axis], v.shape[axis], *joined[axis + 1 :]])
        for v in (x, index)
    ]
    return expanded[0], expanded[1]


@op("nonzero", "argwhere")
def nonzero(b: Builder, node: Node) -> Value:
    """Coordinates of the elements that are not zero, a row each."""
    rows = selecting.nonzero(b, node.value("self"))
    return layout.transpose(b, rows, [1, 0])


@op("nonzero_numpy")
def nonzero_numpy(b: Builder, node: Node) -> list[Value]:
    """Coordinates of the elements that are not zero, a vector for each axis."""
    return coordinates(b, with_axis(b, node.value("self")))


def with_axis(b: Builder, x: Value) -> Value:
    """A tensor as it is, a number as a vector of one element."""
    return x if x.shape else layout.reshape(b, x, [1])


def coordinates(b: Builder, x: Value) -> list[Value]:
    """A vector of indices for each axis: where x is not zero."""
    rows = selecting.nonzero(b, x)
    rank = len(x.shape)
    return [
        layout.squeeze(b, layout.strided_slice(b, rows, 0, axis, axis + 1, 1), [0])
        for axis in range(rank)
    ]


@op("masked_select")
def masked_select(b: Builder, node: Node) -> Value:
    """The elements for which the mask holds, in a vector."""
    x, mask = node.value("self"), ew.cast(b, node.value("mask"), "bool")
    shape = broadcast.joined_shape(b, x.shape, mask.shape)
    size = b.facts.simplify(ex.prod(shape))
    flat = [layout.reshape(b, broadcast.expand(b, value, shape), [size]) for value in (x, mask)]
    return selecting.compress(b, flat[0], flat[1], None)


@op("index", "_unsafe_index")
def index(b: Builder, node: Node) -> Value:
    """numpy's advanced indexing: None takes an axis whole, bool tensors stand for the coordinates
    at which they hold.
    """
    x = node.value("self")
    return _taken(b, x, index_tensors(b, node, x))


@op("_unsafe_masked_index")
def masked_index(b: Builder, node: Node) -> Value:
    """`index` where a mask holds, whose other indices may be out of range, and `fill` elsewhere."""
    x = node.value("self")
    taken = Array(b, _taken(b, x, clamp_indices(b, x, index_tensors(b, node, x))))
    return taken.where(argument(b, node, "mask"), node.get("fill")).value


def clamp_indices(
    b: Builder, x: Value, indices: dict[int, Value], from_end: bool = False
) -> dict[int, Value]:
    """Indices brought into the range of their axes of x, where negative ones may count from the
    end.
    """

    def number(extent: Extent) -> Array:
        return Array(b, Known.of(b.facts.simplify(extent), "int64"))

    return {
        axis: Array(b, ew.cast(b, value, "int64"))
        .at_most(number(ex.sub(x.shape[axis], 1)))
        .at_least(number(ex.sub(0, x.shape[axis])) if from_end else 0)
        .value
        for axis, value in indices.items()
    }


def _taken(b: Builder, x: Value, indices: dict[int, Value]) -> Value:
    if len(indices) == 1:
        ((axis, only),) = indices.items()
        return layout.take(b, x, ix.check(b, only, x.shape[axis]), axis)
    return _gathered(b, x, indices)


def index_tensors(b: Builder, node: Node, x: Value) -> dict[int, Value]:
    """An integer tensor for each axis that is indexed, all of one shape."""
    indices: dict[int, Value] = {}
    axis = 0
    arguments = list(node.raw.inputs())[node.names.index("indices")].node()
    for position, item in enumerate(node.items("indices")):
        if item is None:
            axis += 1
            continue
        value = node.memory.read(item)
        if value.dtype in ("bool", "uint8"):
            for coordinate in coordinates(b, value):
                indices[axis] = coordinate
                axis += 1
            continue
        if arguments.kind() == "prim::ListConstruct":
            limit = Limit(0, end_of(b.facts, x.shape[axis], -1), from_end=True)
            node.scope.model.indexed.append((list(arguments.inputs())[position], limit))
        indices[axis] = value
        axis += 1
    if len(indices) > 1:
        shape = broadcast.joined_shape(
            b, *(value.shape for value in indices.values()), what="indices"
        )
        indices = {
            axis: broadcast.expand(b, ew.cast(b, value, "int64"), shape)
            for axis, value in indices.items()
        }
    return indices


def _gathered(b: Builder, x: Value, indices: dict[int, Value]) -> Value:
    """x at the indices of some axes: the axes of the indices come where the indexed axes are if
    those are neighbours, else first.
    """
    axes = sorted(indices)
    shape = next(iter(indices.values())).shape
    positions = [ix.check(b, indices[axis], x.shape[axis]) for axis in axes]
    first = axes[0] if axes[-1] - axes[0] == len(axes) - 1 else 0
    others = [axis for axis in range(len(x.shape)) if axis not in indices]
    before = [axis for axis in others if axis < axes[0]] if first == axes[0] else []
    after = [axis for axis in others if axis not in before]
    out = [*(x.shape[axis] for axis in before), *shape, *(x.shape[axis] for axis in after)]
    lead, rank = len(before), len(shape)

    def compute(data: te.Tensor, *index_arrays: te.Tensor) -> te.Tensor:
        def element(*i: Any) -> Any:
            along_indices = i[lead : lead + rank]
            coordinates = dict(zip([*before, *after], [*i[:lead], *i[lead + rank :]], strict=True))
            coordinates.update(
                {
                    axis: along.address(index(*along_indices))
                    for axis, along, index in zip(axes, positions, index_arrays, strict=True)
                }
            )
            return data(*(coordinates[axis] for axis in range(len(x.shape))))

        return te.compute([ex.prim(extent) for extent in out], element, name="index")

    return b.te(compute, x, *(indices[axis] for axis in axes), name="index")


@op("one_hot")
def one_hot(b: Builder, node: Node) -> Value:
    """int64 rows with a 1 at the index; -1 classes are as many as the greatest index needs."""
    x = node.value("self")
    depth = _classes(b, node, x)
    indexes(b, node, "self", depth)
    ix.check_within(b, x, 0, depth, f"a class is negative or not below num_classes, {depth}")
    return ix.one_hot(b, x, depth, Known(np.array([0, 1], np.int64), "int64"), -1)


def _classes(b: Builder, node: Node, x: Value) -> Extent:
    depth = node.extent("num_classes", -1)
    if b.facts.is_nonnegative(depth):
        return node.size("num_classes")
    node.limit("num_classes", 0)
    greatest = rd.reduce(b, x, "max", list(range(len(x.shape))), False)
    needed = ex.add(b.known_integers(greatest, "class").scalars()[0], 1)
    return node.as_size(ex.select(ex.equal(depth, -1), needed, depth), "num_classes")


@op("bucketize", "searchsorted")
def bucketize(b: Builder, node: Node) -> Value:
    """How many of the sorted boundaries, a vector or one for each row, lie before each element, or
    up to it with `right`.
    """
    bounds = node.value("boundaries" if "boundaries" in node.names else "sorted_sequence")
    x = operand(b, node, node.get("self"), bounds.dtype)
    sorter = node.optional("sorter")
    if sorter is not None:
        bounds = ix.gather_elements(b, bounds, sorter, len(bounds.shape) - 1)
    rows = len(bounds.shape)
    if rows > 1:
        bounds = layout.unsqueeze(b, bounds, [rows - 1])
    right = node.bool("right", False) or node.get("side", None) == "right"
    # A NaN lies behind all boundaries.
    element = layout.unsqueeze(b, x, [len(x.shape)])
    before = negate(b, ew.compare(b, bounds, element, "greater" if right else "greater_equal"))
    return rd.reduce(
        b,
        ew.cast(b, before, "int32" if node.bool("out_int32", False) else "int64"),
        "sum",
        [len(x.shape)],
        False,
    )


@op("isin")
def isin(b: Builder, node: Node) -> Value:
    """True where an element is one of the test elements."""
    names = [
        name
        for name in ("elements", "element", "test_elements", "test_element")
        if name in node.names
    ]
    x, tests = pair(b, node, *names)
    flat = layout.reshape(b, tests, [b.facts.simplify(ex.prod(tests.shape))])
    hits = ew.compare(b, layout.unsqueeze(b, x, [len(x.shape)]), flat, "equal")
    result = rd.reduce(b, hits, "max", [len(x.shape)], False)
    return negate(b, result) if node.bool("invert", False) else result


@op("take")
def take(b: Builder, node: Node) -> Value:
    """Elements of the flattened tensor at indices."""
    x, index = node.value("self"), node.value("index")
    size = b.facts.simplify(ex.prod(x.shape))
    indexes(b, node, "index", size)
    return layout.take(b, layout.reshape(b, x, [size]), ix.check(b, index, size), 0)

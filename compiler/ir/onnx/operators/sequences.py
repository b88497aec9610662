"""ONNX sequences and optional values, which import takes apart."""

import numpy as np
import onnx

from compiler.ir.graph.builder import Builder
from compiler.ir.graph.values import Known, Value
from compiler.ir.onnx.model.lists import Content, Items, Stacked, stack_of
from compiler.ir.onnx.node import Node
from compiler.ir.onnx.registry import op
from compiler.ir.ops.shape import control, indexing, layout
from compiler.ir.shapes import extents as ex

_LENGTH = "only run time knows how many items the sequence has"


@op("SequenceConstruct", since=11)
def construct(b: Builder, node: Node) -> Items:
    """A list of the inputs."""
    return Items(tuple(node.value(index) for index in range(len(node.inputs))))


@op("SequenceEmpty", since=11)
def empty(b: Builder, node: Node) -> Items:
    """A list of nothing."""
    return Items(())


@op("SequenceInsert", since=11)
def insert(b: Builder, node: Node) -> Content:
    """One item more, before a position or at the end."""
    sequence, item = node.sequence(0), node.value(1)
    if isinstance(sequence, Stacked):
        if node.has(2):
            node.fail(f"{_LENGTH}; items can be added only at its end", reason="sequence")
        return Stacked(control.push(b, sequence.tensor, item))
    position = (
        _position(node, 2, len(sequence.values), end=1) if node.has(2) else len(sequence.values)
    )
    return Items((*sequence.values[:position], item, *sequence.values[position:]))


@op("SequenceErase", since=11)
def erase(b: Builder, node: Node) -> Items:
    """All items but one, the last where no position is given."""
    values = _items(node, 0)
    position = _position(node, 1, len(values)) if node.has(1) else len(values) - 1
    return Items((*values[:position], *values[position + 1 :]))


@op("SequenceAt", since=11)
def item_at(b: Builder, node: Node) -> Value:
    """The item at a position, which counts from the end where it is negative."""
    sequence, position = node.sequence(0), node.value(1)
    if isinstance(sequence, Items) and isinstance(position, Known) and not position.symbolic:
        return sequence.values[_position(node, 1, len(sequence.values))]
    stack = _stacked(b, node, sequence)
    index = indexing.check(b, layout.reshape(b, position, []), stack.shape[0], "a position")
    return layout.take(b, stack, index, 0)


@op("SequenceLength", since=11)
def length(b: Builder, node: Node) -> Value:
    """How many items there are."""
    sequence = node.sequence(0)
    count = len(sequence.values) if isinstance(sequence, Items) else sequence.tensor.shape[0]
    return Known.of(count, "int64")


@op("SplitToSequence", since=11)
def split(b: Builder, node: Node) -> Content:
    """The input cut along an axis: into slices of one, into parts of one size, or of given
    sizes.
    """
    x = node.value(0)
    axis = layout.axis_of(node.attr("axis", 0), len(x.shape))
    extent = b.facts.simplify(x.shape[axis])
    if not node.has(1):
        return _slices(b, x, axis, extent, bool(node.attr("keepdims", 1)))
    sizes = node.known_extents(1, "split")
    if sizes.shape:
        return Items(layout.split(b, x, axis, sizes.scalars()))
    (size,) = sizes.scalars()
    if not isinstance(size, int) or not isinstance(extent, int) or size < 1:
        hint = "fix the split with --const, and the axis with --dim"
        node.fail(_LENGTH, reason="sequence", hint=hint)
    rest = [extent % size] if extent % size else []
    return Items(layout.split(b, x, axis, [size] * (extent // size) + rest))


def _slices(b: Builder, x: Value, axis: int, extent: ex.Extent, keep: bool) -> Content:
    if isinstance(extent, int):
        parts = layout.split(b, x, axis, [1] * extent)
        return Items(parts if keep else tuple(layout.squeeze(b, part, [axis]) for part in parts))
    moved = layout.transpose(b, x, [axis, *(i for i in range(len(x.shape)) if i != axis)])
    return Stacked(layout.unsqueeze(b, moved, [axis + 1]) if keep else moved)


@op("ConcatFromSequence", since=11)
def concat(b: Builder, node: Node) -> Value:
    """The items one behind the other, along an axis that they have or a new one."""
    sequence, axis, new = node.sequence(0), node.attr("axis"), bool(node.attr("new_axis", 0))
    if isinstance(sequence, Items):
        if not sequence.values:
            node.fail("a sequence without items has nothing to concatenate", reason="sequence")
        axis = layout.axis_of(axis, len(sequence.values[0].shape) + new)
        parts = sequence.values
        return layout.concat(
            b, [layout.unsqueeze(b, part, [axis]) for part in parts] if new else parts, axis
        )
    shape = sequence.tensor.shape[1:]
    axis = layout.axis_of(axis, len(shape) + new)
    order = list(range(1, len(shape) + 1))
    order.insert(axis, 0)
    moved = layout.transpose(b, sequence.tensor, order)
    if new:
        return moved
    merged = b.facts.simplify(ex.mul(sequence.tensor.shape[0], shape[axis]))
    return layout.reshape(b, moved, [*shape[:axis], merged, *shape[axis + 1 :]])


@op("SequenceMap", since=17)
def map_items(b: Builder, node: Node) -> list[Content]:
    """The body, once an item; an input that is no sequence is the same for all."""
    body: onnx.GraphProto = node.attr("body")
    inputs = [node.content(index) for index in range(len(node.inputs))]
    count = len(_items(node, 0))
    columns: list[list[Value]] = [[] for _ in body.output]
    for index in range(count):
        results = node.scope.subgraph(body, [_nth(node, content, index) for content in inputs])
        for column, value in zip(columns, results, strict=True):
            column.append(value)
    return [Items(tuple(column)) for column in columns]


def _nth(node: Node, content: Content, index: int) -> Value:
    if not isinstance(content, (Items, Stacked)):
        return content
    if isinstance(content, Stacked) or index >= len(content.values):
        node.fail("the sequences differ in length", reason="sequence")
    return content.values[index]


@op("Optional", since=15)
def optional(b: Builder, node: Node) -> list[Content | None]:
    """The input, or nothing."""
    return [node.content(0) if node.has(0) else None]


@op("OptionalHasElement", since=15)
def has_element(b: Builder, node: Node) -> Value:
    """True if the input is there, which import knows."""
    return Known(np.asarray(node.has(0)), "bool")


@op("OptionalGetElement", since=15)
def get_element(b: Builder, node: Node) -> Content:
    """The input, which must be there."""
    if not node.has(0):
        node.fail("the optional value has no element", reason="optional")
    return node.content(0)


def _items(node: Node, index: int) -> tuple[Value, ...]:
    sequence = node.sequence(index)
    if isinstance(sequence, Stacked):
        node.fail(_LENGTH, reason="sequence", hint="fix the axis that decides it with --dim")
    return sequence.values


def _position(node: Node, index: int, count: int, end: int = 0) -> int:
    """A position among `count` as a number from 0 up; end: 1 where the one behind the last is
    allowed.
    """
    position = node.known_integers(index, "position").scalars()[0]
    if not isinstance(position, int):
        node.fail(
            "only run time knows the position in the sequence",
            reason="sequence",
            hint="fix the input that decides it with --const",
        )
    if not -count <= position < count + end:
        node.fail(
            f"position {position} is outside of a sequence of {count} tensors", reason="sequence"
        )
    return position if position >= 0 else position + count


def _stacked(b: Builder, node: Node, sequence: Items | Stacked) -> Value:
    stack = sequence.tensor if isinstance(sequence, Stacked) else stack_of(b, sequence)
    if stack is None:
        node.fail(
            "only run time knows the position, and the items differ in shape", reason="sequence"
        )
    return stack

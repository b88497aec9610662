"""Slices, and elements by their positions."""

import math
from dataclasses import dataclass

import numpy as np

from compiler.ir.tflite.node import LARGEST, Node
from compiler.ir.tflite.registry import op

_LARGEST_BOX = 1 << 22
"""Elements that a replaced box may have: each has a constant index."""


@op("SLICE")
def slice_of(node: Node) -> str:
    """A box of a tensor: its beginning and its size, of which -1 is the rest."""
    rank, starts, sizes = node.rank(), node.find_constant(1), node.find_constant(2)
    if starts is not None and sizes is not None:
        begin, size = starts.reshape(-1).astype(np.int64), sizes.reshape(-1).astype(np.int64)
        if len(begin) != rank or len(size) != rank or (begin < 0).any() or (size < -1).any():
            node.fail(f"a slice at {begin.tolist()} of {size.tolist()}", reason="shape")
        ends = np.where(size < 0, LARGEST, begin + size)
        return str(node.put("Slice", node.x(), node.const(begin), node.const(ends)))
    begins, lengths = node.ints(1), node.ints(2)
    is_rest = node.put("Less", lengths, node.const(0, "int64"))
    stops = node.put(
        "Where", is_rest, node.const(LARGEST, "int64"), node.put("Add", begins, lengths)
    )
    return str(node.put("Slice", node.x(), begins, stops))


@dataclass(frozen=True)
class _Entry:
    """One entry of a strided slice: the position of its numbers, and the axis that it reads, None
    for a new one.
    """

    position: int
    axis: int | None


@op("STRIDED_SLICE")
def strided_slice(node: Node) -> str:
    """A slice in Python's notation: new axes, an ellipsis, ends left out and single positions are
    bits of masks.
    """
    entries = _entries(node)
    begins, ends, steps = (_numbers(node, index) for index in (1, 2, 3))
    x, removed, added, axis = node.x(), [], [], 0
    for entry in entries:
        if entry.axis is None:
            added.append(axis)
            axis += 1
            continue
        single = _bit(node, "shrink_axis_mask", entry.position)
        x = (
            _single(node, x, entry, begins, steps)
            if single
            else _range(node, x, entry, begins, ends, steps)
        )
        removed += [entry.axis] if single else []
        axis += not single
    if removed:
        x = str(node.put("Squeeze", x, node.const(removed, "int64")))
    return str(node.put("Unsqueeze", x, node.const(added, "int64"))) if added else x


def _bit(node: Node, mask: str, position: int) -> bool:
    return position >= 0 and bool(node.option(mask) >> position & 1)


def _entries(node: Node) -> list[_Entry]:
    """The entries in order; the ellipsis is left out, and so are axes that none names, except for
    those between new axes: every axis that is kept as it is is an entry of position -1.
    """
    count = node.tensor(1).shape[0] if node.rank(1) == 1 else -1
    if not 0 <= count <= 32:
        node.fail(f"a slice of {count} entries", reason="shape")
    dots = [index for index in range(count) if _bit(node, "ellipsis_mask", index)]
    if len(dots) > 1:
        node.fail("a slice with several ellipses", reason="attribute")
    new = [
        index for index in range(count) if _bit(node, "new_axis_mask", index) and index not in dots
    ]
    named = count - len(dots) - len(new)
    if named > node.rank():
        node.fail(f"a slice of {named} axes of {node.rank()}", reason="shape")
    entries, axis = [], 0
    for position in range(count):
        if position in dots:
            rest = node.rank() - named
            entries += [_Entry(-1, axis + index) for index in range(rest)]
            axis += rest
        elif position in new:
            entries.append(_Entry(position, None))
        else:
            entries.append(_Entry(position, axis))
            axis += 1
    return entries + [_Entry(-1, rest) for rest in range(axis, node.rank())]


def _numbers(node: Node, index: int) -> list[int | str]:
    """The numbers of an input: known ones, or names of values of one element."""
    known = node.find_constant(index)
    if known is not None:
        return [int(number) for number in known.reshape(-1)]
    values = node.ints(index)
    count = node.tensor(index).shape[0] if node.rank(index) == 1 else 0
    return [
        str(node.put("Slice", values, node.const([n], "int64"), node.const([n + 1], "int64")))
        for n in range(count)
    ]


def _name(node: Node, number: int | str) -> str:
    return node.const([number], "int64") if isinstance(number, int) else number


def _number(node: Node, numbers: list[int | str], entry: _Entry) -> int | str:
    if entry.position >= len(numbers):
        node.fail("a slice of fewer numbers than entries", reason="shape")
    return numbers[entry.position]


def _step(node: Node, steps: list[int | str], entry: _Entry) -> int:
    step = _number(node, steps, entry)
    if not isinstance(step, int) or step == 0:
        node.fail("the stride is 0, or computed at run time", reason="data_dependent")
    assert isinstance(step, int)
    return step


def _single(
    node: Node, x: str, entry: _Entry, begins: list[int | str], steps: list[int | str]
) -> str:
    if _step(node, steps, entry) < 0:
        node.fail("a single position with a negative stride", reason="attribute")
    begin = 0 if _bit(node, "begin_mask", entry.position) else _number(node, begins, entry)
    return str(node.put("Gather", x, _name(node, begin), axis=entry.axis))


def _range(
    node: Node,
    x: str,
    entry: _Entry,
    begins: list[int | str],
    ends: list[int | str],
    steps: list[int | str],
) -> str:
    if entry.position < 0:
        return x
    step = _step(node, steps, entry)
    first, last = (0, LARGEST) if step > 0 else (LARGEST, -LARGEST)
    begin: int | str = first
    end: int | str = last
    if not _bit(node, "begin_mask", entry.position):
        begin = _number(node, begins, entry)
    if not _bit(node, "end_mask", entry.position):
        end = _number(node, ends, entry)
        if node.option("offset"):
            end = str(node.put("Add", _name(node, begin), _name(node, end)))
    if (begin, end, step) == (0, LARGEST, 1):
        return x
    numbers = (begin, end, entry.axis, step)
    return str(node.put("Slice", x, *(_name(node, number) for number in numbers)))  # type: ignore[arg-type]


@op("GATHER")
def gather(node: Node) -> str:
    """Positions of an axis, by indices that may be by sample."""
    rank, batch = node.rank(), node.option("batch_dims")
    axis = node.axis(node.option("axis"), rank)
    if not batch:
        return str(node.put("Gather", node.x(), node.x(1), axis=axis))
    batch = node.axis(batch, node.rank(1) + 1)
    if axis != batch:
        node.fail("indices by sample on another axis than theirs", reason="unsupported_shape")
    last = node.put("Unsqueeze", node.ints(1), node.const([-1], "int64"))
    return str(node.put("GatherND", node.x(), last, batch_dims=batch))


@op("GATHER_ND")
def gather_nd(node: Node) -> str:
    """Elements or rows by indices on the last axis."""
    return str(node.put("GatherND", node.x(), node.ints(1)))


@op("EMBEDDING_LOOKUP")
def embedding_lookup(node: Node) -> str:
    """Rows of a table."""
    if node.is_quantized(1):
        node.fail("a table of integers is not supported", reason="unsupported_dtype")
    return str(node.put("Gather", node.x(1), node.x(0), axis=0))


@op("SCATTER_ND")
def scatter_nd(node: Node) -> str:
    """Zeros to which updates are added at indices."""
    dtype = node.tensor(1).dtype
    zeros = node.put("Expand", node.const(0, dtype), node.ints(2))
    return str(node.put("ScatterND", zeros, node.ints(0), node.x(1), reduction="add"))


@op("ONE_HOT")
def one_hot(node: Node) -> str:
    """One value where the index is the position on a new axis, another elsewhere."""
    rank = node.rank() + 1
    axis = node.axis(node.option("axis"), rank)
    depth = node.put("Reshape", node.ints(1), node.const([], "int64"))
    numbers = node.put("Range", node.const(0, "int64"), depth, node.const(1, "int64"))
    shape = [-1 if position == axis else 1 for position in range(rank)]
    positions = node.put("Reshape", numbers, node.const(shape, "int64"))
    indices = node.put("Unsqueeze", node.ints(0), node.const([axis], "int64"))
    hit = node.put("Equal", indices, positions)
    return str(node.put("Where", hit, node.x(2), node.x(3)))


@op("DYNAMIC_UPDATE_SLICE")
def dynamic_update_slice(node: Node) -> str:
    """A tensor with a box of it replaced: not supported where only a run knows the position."""
    starts = node.constant(2, "the position").reshape(-1).astype(np.int64)
    if len(starts) != node.rank() or node.rank(1) != node.rank() or node.tensor(1).open:
        node.fail(f"a box at {starts.tolist()}", reason="shape")
    if not 0 <= math.prod(node.tensor(1).shape) <= _LARGEST_BOX:
        node.fail(f"a box of {list(node.tensor(1).shape)}", reason="shape")
    x, update = node.x(), node.x(1)
    sizes, box = node.tensor(0).shape, node.tensor(1).shape
    starts = np.clip(starts, 0, np.array(sizes) - np.array(box))
    ranges = [np.arange(start, start + size) for start, size in zip(starts, box, strict=True)]
    grid = np.stack(np.meshgrid(*ranges, indexing="ij"), -1)
    return str(node.put("ScatterND", x, node.const(grid, "int64"), update))

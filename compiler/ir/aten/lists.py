"""Lists whose length only run time knows: the items of a stack, and the parts of an axis, each of
which is made where a program takes it.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from compiler.errors import ImportFailed
from compiler.ir.aten.memory import Memory, Parts, Ref, Stack, Step
from compiler.ir.ops.shape import layout
from compiler.ir.shapes import extents as ex
from compiler.ir.shapes.extents import Extent


def cut(memory: Memory, source: Ref, axis: int, start: Extent, stop: Extent) -> Ref:
    """A view of part of an axis, with the bounds of a slice."""
    step = _part(axis, start, stop)
    return memory.view(source, step(memory.builder, memory.read(source)), step)


def _part(axis: int, start: Extent, stop: Extent) -> Step:
    return lambda b, x: layout.strided_slice(b, x, axis, start, stop, 1)


def take_item(memory: Memory, items: Stack | Parts, index: Extent) -> Ref:
    """The item at an index, which every run checks to be in range."""
    b = memory.builder
    position = layout.within(b, index, items.length, "a list")
    if isinstance(items, Stack):
        return memory.item(layout.select(b, items.tensor, 0, position))
    bounds = map(b.facts.simplify, items.bounds(position, items.length))
    return cut(memory, items.source, items.axis, *bounds)


def unpack(memory: Memory, content: Any, count: int) -> tuple[Any, ...]:
    """The items of a list or tuple, as many as a program takes it apart into."""
    b = memory.builder
    message = f"the model takes a list of {{}} apart into {count}"
    if isinstance(content, Stack):
        b.require(ex.equal(content.length, count), message.format(content.length))
        return tuple(take_item(memory, content, index) for index in range(count))
    if isinstance(content, Parts):
        extent = memory.read(content.source).shape[content.axis]
        b.require(
            ex.equal(content.length, count), f"the model takes an axis of {extent} in {count} parts"
        )
        starts = [b.facts.simplify(content.bounds(index, count)[0]) for index in range(count)]
        parts = pairwise([*starts, extent])
        return tuple(cut(memory, content.source, content.axis, *part) for part in parts)
    if len(content) != count:
        raise ImportFailed(message.format(len(content)), reason="shape")
    return tuple(content)


def stack_parts(memory: Memory, parts: Parts) -> Stack:
    """The parts as the items of a stack, which every run checks to be of one size."""
    b, value = memory.builder, memory.read(parts.source)
    axis, extent = parts.axis, value.shape[parts.axis]
    start, stop = parts.bounds(0, parts.length)
    size = ex.minimum(ex.sub(stop, start), extent)
    length, size = b.extents([parts.length, size], "parts")
    b.same(ex.mul(length, size), extent, f"the parts of an axis of {extent} differ in size")
    apart = layout.reshape(b, value, [*value.shape[:axis], length, size, *value.shape[axis + 1 :]])
    rest = (index for index in range(len(apart.shape)) if index != axis)
    return Stack(layout.transpose(b, apart, [axis, *rest]))

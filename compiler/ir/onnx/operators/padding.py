"""ONNX Pad."""

from collections.abc import Sequence

import numpy as np

from compiler.ir.graph.builder import Builder
from compiler.ir.graph.values import Known, Value
from compiler.ir.onnx.node import Node
from compiler.ir.onnx.registry import op
from compiler.ir.ops.nn.pad import PadMode, pad
from compiler.ir.ops.shape import layout
from compiler.ir.shapes import extents as ex
from compiler.ir.shapes.extents import Extent
from compiler.ir.shapes.index_bounds import USUAL


def _mode(node: Node) -> PadMode:
    name = node.attr("mode", "constant")
    if name not in {mode.value for mode in PadMode}:
        node.fail(f"the mode {name!r} is none of {', '.join(PadMode)}", reason="attribute")
    return PadMode(name)


@op("Pad", since=11)
def pad_inputs(b: Builder, node: Node) -> Value:
    """By run-time amounts, on some axes or all."""
    x = node.value(0)
    rank = len(x.shape)
    amounts = node.known_integers(1, "pad", *_usual(x, _mode(node))).scalars()
    axes = node.known_integers(3, "axis", 0, rank - 1).scalars() if node.has(3) else range(rank)
    if not all(isinstance(axis, int) for axis in axes):
        return _open_axes(b, node, x, amounts, axes)
    padded = [layout.axis_of(int(axis), len(x.shape)) for axis in axes]
    if len(amounts) != 2 * len(padded):
        node.fail(f"{len(amounts)} pads for {len(padded)} axes", reason="shape")
    before: list[Extent] = [0] * len(x.shape)
    after: list[Extent] = [0] * len(x.shape)
    for lane, axis in enumerate(padded):
        before[axis], after[axis] = amounts[lane], amounts[lane + len(padded)]
    return pad(b, x, before, after, _mode(node), _fill(b, node))


def _usual(x: Value, mode: PadMode) -> tuple[Extent, Extent]:
    """Amounts that every axis admits on both sides; those that are less than 0 crop."""
    shortest: Extent = USUAL
    for extent in x.shape:
        shortest = ex.minimum(shortest, extent)
    if mode is PadMode.REFLECT:
        return 0, ex.sub(shortest, 1)
    left = shortest if mode is PadMode.CONSTANT else ex.sub(shortest, 1)
    return ex.sub(0, ex.floordiv(left, 2)), USUAL


def _fill(b: Builder, node: Node) -> Value | None:
    fill = node.optional(2)
    return None if fill is None else layout.reshape(b, fill, [])


@op("Pad", since=2)
def pad_attributes(b: Builder, node: Node) -> Value:
    """By amounts that are attributes."""
    x, amounts = node.value(0), node.attr("pads")
    rank = len(x.shape)
    return pad(
        b,
        x,
        amounts[:rank],
        amounts[rank:],
        _mode(node),
        Known(np.asarray(node.attr("value", 0.0), np.dtype(x.dtype)), x.dtype),
    )


def _open_axes(
    b: Builder, node: Node, x: Value, amounts: Sequence[ex.Scalar], axes: Sequence[ex.Scalar]
) -> Value:
    """Axes that only run time knows: each axis is padded by the amount whose entry names it."""
    rank, count = len(x.shape), len(axes)
    before: list[Extent] = []
    after: list[Extent] = []
    for axis in range(rank):
        for sides, offset in ((before, 0), (after, count)):
            total: Extent = 0
            for lane, entry in enumerate(axes):
                here = ex.either(ex.equal(entry, axis), ex.equal(entry, axis - rank))
                total = ex.select(here, amounts[lane + offset], total)
            sides.append(b.facts.simplify(total))
    return pad(b, x, before, after, _mode(node), _fill(b, node))

"""Images of another size."""

from typing import Any

from compiler.ir.tflite.node import Node
from compiler.ir.tflite.registry import op

_BITS = 10
"""Of a position's fraction, where integers are interpolated."""


@op("RESIZE_BILINEAR", "RESIZE_NEAREST_NEIGHBOR")
def resize(node: Node) -> str:
    """An image sampled at the positions of another size."""
    node.require_rank(4)
    linear = node.operator.name == "RESIZE_BILINEAR"
    if linear and node.is_quantized():
        node.require_bytes(0)
        return _resize_integers(node)
    if node.option("align_corners"):
        mode = "align_corners"
    else:
        mode = "half_pixel" if node.option("half_pixel_centers") else "asymmetric"
    nearest = "round_prefer_ceil" if node.option("align_corners") else "floor"
    if not linear and mode == "half_pixel":
        return _nearest_centres(node)
    image = node.to_channels_first(node.x())
    sizes = node.put("Shape", image, end=2)
    wanted = node.put("Concat", sizes, node.ints(1), axis=0)
    attributes: dict[str, Any] = {
        "mode": "linear" if linear else "nearest",
        "coordinate_transformation_mode": mode,
    }
    attributes |= {} if linear else {"nearest_mode": nearest}
    y = node.put("Resize", image, "", "", wanted, **attributes)
    return node.to_channels_last(y)


def _axis_sizes(node: Node, axis: int) -> tuple[str, str]:
    """Sizes of an axis of the input and of the output, int64 scalars."""
    have = node.put("Shape", node.x(), start=axis, end=axis + 1)
    ends = (node.const([end], "int64") for end in (axis - 1, axis))
    want = node.put("Slice", node.ints(1), *ends)
    scalar = node.const([], "int64")
    return node.put("Reshape", have, scalar), node.put("Reshape", want, scalar)


def _positions(node: Node, count: str) -> str:
    zero, one = node.const(0, "int64"), node.const(1, "int64")
    return str(node.put("Range", zero, count, one))


def _nearest_centres(node: Node) -> str:
    """The pixel whose square holds the centre of each new one: floor((i + 0.5) * in / out), which
    is floor((2 i + 1) * in / (2 out)) in integers.
    """
    x = node.x()
    for axis in (1, 2):
        have, want = _axis_sizes(node, axis)
        twice = node.put("Mul", _positions(node, want), node.const(2, "int64"))
        odd = node.put("Add", twice, node.const(1, "int64"))
        doubled = node.put("Mul", want, node.const(2, "int64"))
        index = node.put("Div", node.put("Mul", odd, have), doubled)
        x = str(node.put("Gather", x, index, axis=axis))
    return x


def _resize_integers(node: Node) -> str:
    """Bilinear interpolation of bytes, with fractions of 10 bits, rounded halves away from zero."""
    x, unit = node.cast(node.x(), "int32"), 1 << _BITS
    for axis in (1, 2):
        low, high, fraction = _neighbours(node, axis)
        shape = [-1 if position == axis else 1 for position in range(4)]
        weight = node.put("Reshape", node.cast(fraction, "int32"), node.const(shape, "int64"))
        rest = node.put("Sub", node.const(unit, "int32"), weight)
        before = node.put("Mul", node.put("Gather", x, low, axis=axis), rest)
        behind = node.put("Mul", node.put("Gather", x, high, axis=axis), weight)
        x = node.put("Add", before, behind)
    half = unit * unit // 2
    positive = node.put("Greater", x, node.const(0, "int32"))
    moved = node.put(
        "Add", x, node.put("Where", positive, node.const(half, "int32"), node.const(-half, "int32"))
    )
    return node.cast(node.put("Div", moved, node.const(unit * unit, "int32")), node.output.dtype)


def _neighbours(node: Node, axis: int) -> tuple[str, str, str]:
    """The positions of an axis that each new one lies between, and how far, in parts of 1024."""
    have, want = _axis_sizes(node, axis)
    zero, one, unit = (node.const(value, "int64") for value in (0, 1, 1 << _BITS))
    top, bottom = have, want
    if node.option("align_corners"):
        last = node.put("Sub", want, one)
        several = node.put("Greater", want, one)
        top = node.put("Where", several, node.put("Sub", have, one), have)
        bottom = node.put("Where", several, last, want)
    half = node.put("Div", bottom, node.const(2, "int64"))
    step = node.put("Div", node.put("Add", node.put("Mul", top, unit), half), bottom)
    position = node.put("Mul", _positions(node, want), step)
    if node.option("half_pixel_centers"):
        centre = node.put("Div", step, node.const(2, "int64"))
        shift = node.put("Sub", centre, node.const(1 << _BITS - 1, "int64"))
        position = node.put("Add", position, shift)
    end = node.put("Sub", have, one)
    low = node.put("Min", node.put("Max", node.put("Div", position, unit), zero), end)
    above = node.put("Div", node.put("Add", position, node.const((1 << _BITS) - 1, "int64")), unit)
    high = node.put("Min", above, end)
    fraction = node.put("Sub", position, node.put("Mul", low, unit))
    return low, high, fraction

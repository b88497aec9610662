"""Nodes that move or select strings."""

from collections.abc import Iterable, Mapping, Sequence
from math import prod
from typing import Any

import numpy as np
from onnx import numpy_helper

from compiler.ir.onnx.model.dtypes import DTYPES
from compiler.ir.onnx.strings.operand import Axes, AxisName, Converted, Result, StringNode, converts
from relaxd.contract.dims.tensors import TEXT

_ML = "ai.onnx.ml"
_STRING = 8
"""ONNX's number of the element type."""


def is_text_array(array: np.ndarray) -> bool:
    """True for an array of strings as onnx reads them: objects that are text or its bytes."""
    return array.dtype == object


def _like(
    node: StringNode, op: str, axes: Axes, attributes: Mapping[str, Any] | None = None
) -> Converted:
    """A step with one output of the first input's dtype."""
    return Converted(op, (Result(_dtype(node), axes),), attributes or {}, inputs=(0,))


def _dtype(node: StringNode, index: int = 0) -> str:
    dtype = node.operand(index).dtype
    if dtype is None:
        node.fail(f"the dtype of input {index} is not known")
    return dtype


def constant_step(array: np.ndarray) -> Converted:
    """A constant as a step."""
    text = is_text_array(array)
    values = [_text(one) if text else one for one in array.reshape(-1).tolist()]
    dtype = TEXT if text else array.dtype.name
    attributes = {"dtype": dtype, "shape": list(array.shape), "values": values}
    return Converted("constant", (Result(dtype, tuple(array.shape)),), attributes, inputs=())


def _text(value: object) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


@converts("Identity", "Dropout")
def _identity(node: StringNode) -> Converted:
    return _like(node, "identity", node.axes(0))


@converts("Cast")
def _cast(node: StringNode) -> Converted:
    to = node.attr("to")
    if node.operand(0).is_text and to == _STRING:
        return _like(node, "identity", node.axes(0))
    if node.operand(0).is_text or to not in DTYPES or DTYPES[to].startswith(("bfloat", "float8")):
        node.fail("it casts between strings and numbers")
    dtype = DTYPES[to]
    return Converted("cast", (Result(dtype, node.axes(0)),), {"dtype": dtype})


@converts("Reshape")
def _reshape(node: StringNode) -> Converted:
    shape, zero = node.integers(1), bool(node.attr("allowzero", 0))
    axes = _reshaped(node.axes(0), shape, allowzero=zero)
    return _like(node, "reshape", axes, {"shape": shape, "allowzero": zero})


def _reshaped(axes: Axes, shape: Sequence[int], *, allowzero: bool) -> Axes:
    """The axes of a reshape: what -1 stands for is told where it is a dim, or known."""
    target: list[AxisName] = [
        axes[i] if n == 0 and not allowzero and i < len(axes) else n for i, n in enumerate(shape)
    ]
    if -1 in target:
        target[target.index(-1)] = _rest(axes, [one for one in target if one != -1])
    return tuple(target)


def _rest(axes: Iterable[AxisName], others: list[AxisName]) -> AxisName:
    """The quotient of two products of axes, None where it is no single axis."""
    left = [*axes]
    for other in [one for one in others if not isinstance(one, int)]:
        if other is None or other not in left:
            return None
        left.remove(other)
    sizes = [one for one in left if isinstance(one, int)]
    names = [one for one in left if not isinstance(one, int)]
    above, below = prod(sizes), prod(one for one in others if isinstance(one, int))
    if not names:
        return above // below if below and above % below == 0 else None
    return names[0] if len(names) == 1 and above == below else None


@converts("Flatten")
def _flatten(node: StringNode) -> Converted:
    axes, axis = node.axes(0), node.attr("axis", 1)
    first = axis % len(axes) if axis < 0 else axis
    flat = (_rest(axes[:first], []), _rest(axes[first:], []))
    return _like(node, "flatten", flat, {"axis": axis})


@converts("Squeeze")
def _squeeze(node: StringNode) -> Converted:
    own, axes = _given_axes(node), node.axes(0)
    dropped = (
        {axis % len(axes) for axis in own} if own else {i for i, n in enumerate(axes) if n == 1}
    )
    retained = tuple(one for i, one in enumerate(axes) if i not in dropped)
    return _like(node, "squeeze", retained, {"axes": own or sorted(dropped)})


@converts("Unsqueeze")
def _unsqueeze(node: StringNode) -> Converted:
    own, axes = _given_axes(node), [*node.axes(0)]
    for axis in sorted(one % (len(axes) + len(own)) for one in own):
        axes.insert(axis, 1)
    return _like(node, "unsqueeze", tuple(axes), {"axes": own})


def _given_axes(node: StringNode) -> list[int]:
    """Those of an attribute, or from opset 13 on of an input."""
    if len(node.operands) > 1 and node.operands[1] is not None:
        return node.integers(1)
    return [int(one) for one in node.attr("axes", [])]


@converts("Gather")
def _gather(node: StringNode) -> Converted:
    axes, axis, chosen = node.axes(0), node.attr("axis", 0), node.axes(1)
    gathered = axis % len(axes)
    results = (Result(_dtype(node), (*axes[:gathered], *chosen, *axes[gathered + 1 :])),)
    return Converted("gather", results, {"axis": axis})


@converts("ArrayFeatureExtractor", domain=_ML)
def _columns(node: StringNode) -> Converted:
    axes = node.axes(0) if len(node.axes(0)) > 1 else (1, *node.axes(0))
    return Converted("columns", (Result(_dtype(node), (*axes[:-1], _rest(node.axes(1), []))),))


@converts("Concat")
def _concat(node: StringNode) -> Converted:
    all_axes = [node.axes(index) for index in range(len(node.operands))]
    axis = node.attr("axis", 0)
    axes, joined = [*all_axes[0]], axis % len(all_axes[0])
    extents = [one[joined] for one in all_axes if len(one) == len(axes)]
    sizes = [one for one in extents if isinstance(one, int)]
    axes[joined] = sum(sizes) if len(sizes) == len(all_axes) else None
    return Converted("concat", (Result(_dtype(node), tuple(axes)),), {"axis": axis})


@converts("Where")
def _where(node: StringNode) -> Converted:
    axes = broadcast(broadcast(node.axes(0), node.axes(1)), node.axes(2))
    return Converted("where", (Result(_dtype(node, 1), axes),))


@converts("Equal")
def _equal(node: StringNode) -> Converted:
    return Converted("equal", (Result("bool", broadcast(node.axes(0), node.axes(1))),))


@converts("Not")
def _not(node: StringNode) -> Converted:
    return Converted("not", (Result("bool", node.axes(0)),))


@converts("Constant")
def _constant(node: StringNode) -> Converted:
    (attribute,) = node.proto.attribute
    return constant_step(constant_of(attribute.name, node))


def constant_of(kind: str, node: StringNode) -> np.ndarray:
    """The elements of a Constant node by the name of its attribute."""
    value = node.attr(kind)
    if kind == "value":
        return np.asarray(numpy_helper.to_array(value))
    if kind in ("value_string", "value_strings"):
        return np.array(value, object)
    if kind not in ("value_int", "value_ints", "value_float", "value_floats"):
        node.fail(f"its attribute {kind!r} is none that a step has")
    return np.array(value, np.int64 if "int" in kind else np.float32)


def broadcast(x: Axes, y: Axes) -> Axes:
    """The axes of an operator on both."""
    longer, shorter = (x, y) if len(x) >= len(y) else (y, x)
    padded = (1,) * (len(longer) - len(shorter)) + shorter
    return tuple(b if a == 1 else a for a, b in zip(longer, padded, strict=True))

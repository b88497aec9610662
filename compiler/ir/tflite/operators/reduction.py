"""Reductions over axes, extremes with their positions, and running sums."""

import numpy as np

from compiler.ir.tflite.fixed_point import quantize_multiplier
from compiler.ir.tflite.node import Node
from compiler.ir.tflite.registry import op
from compiler.ir.tflite.rescaling import centre, limits_of, requantize

_REDUCTIONS = {
    "MEAN": "ReduceMean", "SUM": "ReduceSum", "REDUCE_PROD": "ReduceProd",
    "REDUCE_MAX": "ReduceMax", "REDUCE_MIN": "ReduceMin",
}  # fmt: skip


def _axes(node: Node) -> list[int]:
    axes = node.constant(1, "the axis").reshape(-1).tolist()
    return sorted({node.axis(int(axis), node.rank()) for axis in axes})


@op(*_REDUCTIONS)
def reduce(node: Node) -> str:
    """A reduction over constant axes."""
    name, axes = node.operator.name, _axes(node)
    if node.is_quantized() and name in ("MEAN", "SUM"):
        return _sum(node, axes)
    if node.is_quantized():
        if name == "REDUCE_PROD":
            node.fail("it is not supported on quantized integers", reason="unsupported_dtype")
        if node.scalar_grid(node.tensor(0)) != node.scalar_grid(node.output):
            node.fail("its input and output have different scales", reason="scales")
    if not axes:
        return str(node.put("Identity", node.x()))
    return _reduce(node, _REDUCTIONS[name], node.x(), axes)


def _reduce(node: Node, operator: str, x: str, axes: list[int]) -> str:
    keep = int(node.option("keep_dims"))
    return str(node.put(operator, x, node.const(axes, "int64"), keepdims=keep))


def _sum(node: Node, axes: list[int]) -> str:
    """Sums and means of bytes, in int32, brought to the output's scale: of a mean, the factor is
    divided by the count, which has to be constant.
    """
    node.require_bytes(0)
    scale, _ = node.scalar_grid(node.tensor(0))
    out, _ = node.scalar_grid(node.output)
    rank = node.rank() if node.option("keep_dims") else node.rank() - len(axes)
    factor = np.float64(scale) / np.float64(out)
    if node.operator.name == "MEAN":
        return _mean(node, axes, factor)
    if node.tensor(0).dtype != "uint8":
        node.fail("SUM of int8 is not supported", reason="unsupported_dtype", hint="use MEAN")
    total = _reduce(node, "ReduceSum", centre(node, 0), axes)
    return requantize(node, total, factor, rank, output=node.output)


def _mean(node: Node, axes: list[int], factor: np.float64) -> str:
    if node.tensor(0).open & set(axes):
        node.fail(
            "a mean of quantized integers over an axis of any size is not supported",
            reason="unsupported_shape",
            hint="convert the model with a fixed size of this axis",
        )
    shape, count = node.tensor(0).shape, 1
    for axis in axes:
        count *= shape[axis]
    if not 0 < count < 1 << 23:
        node.fail(f"a mean of {count} elements", reason="shape")
    # The factor holds the count: axes that it counts keep the sizes of the file.
    pinned = [shape[axis] if axis in axes else 0 for axis in range(node.rank())]
    x = node.put("Reshape", node.x(), node.const(pinned, "int64"))
    total = _reduce(node, "ReduceSum", node.cast(x, "int32"), axes)
    _, zero = node.scalar_grid(node.tensor(0))
    if zero:
        total = node.put("Sub", total, node.const(count * zero, "int32"))
    multiplier, exponent = quantize_multiplier(float(factor))
    # As the kernel has it: the multiplier is divided, shifted so that its bits stay.
    shift = min(count.bit_length() - 1, 32, 31 + exponent)
    divided = (multiplier << shift) // count
    return _requantize(node, total, divided, exponent - shift)


def _requantize(node: Node, total: str, multiplier: int, exponent: int) -> str:
    _, zero = node.scalar_grid(node.output)
    low, high = limits_of(node.output.dtype)
    return str(
        node.put(
            "Requantize",
            total,
            node.const(multiplier, "int32"),
            node.const(exponent, "int32"),
            node.const(zero, node.output.dtype),
            node.const(low, "int32"),
            node.const(high, "int32"),
        )
    )


@op("REDUCE_ANY", "REDUCE_ALL")
def reduce_flags(node: Node) -> str:
    """Any, or all."""
    operator = "ReduceMax" if node.operator.name == "REDUCE_ANY" else "ReduceMin"
    return _reduce(node, operator, node.x(), _axes(node))


@op("ARG_MAX", "ARG_MIN")
def arg_extreme(node: Node) -> str:
    """The first position of an extreme along an axis."""
    axis = node.axis(node.integer(1, "the axis"), node.rank())
    operator = "ArgMax" if node.operator.name == "ARG_MAX" else "ArgMin"
    position = node.put(operator, node.x(), axis=axis, keepdims=0)
    return position if node.output.dtype == "int64" else node.cast(position, node.output.dtype)


@op("TOPK_V2")
def top_k(node: Node) -> list[str]:
    """The k greatest of the last axis, and their positions."""
    k = node.put("Reshape", node.ints(1), node.const([1], "int64"))
    values, positions = node.put("TopK", node.x(), k, outputs=2, axis=-1)
    return [
        values,
        node.cast(positions, node.outputs[1].dtype if len(node.outputs) > 1 else "int32"),
    ]


@op("CUMSUM")
def running_sum(node: Node) -> str:
    """Running sums along an axis."""
    if node.is_quantized():
        node.fail("CUMSUM of quantized integers is not supported", reason="unsupported_dtype")
    axis = node.axis(node.integer(1, "the axis"), node.rank())
    flags = {key: int(node.option(key)) for key in ("exclusive", "reverse")}
    return str(node.put("CumSum", node.x(), node.const(axis, "int64"), **flags))

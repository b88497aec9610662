"""ONNX operators on the bits of integers."""

import numpy as np
from tvm import relax, tirx

from compiler.ir.formats import width_of
from compiler.ir.graph.builder import Builder
from compiler.ir.graph.values import Known, Value
from compiler.ir.onnx.model.dtypes import CARRIED
from compiler.ir.onnx.node import Node
from compiler.ir.onnx.registry import op
from compiler.ir.ops.pointwise import elementwise as ew
from compiler.ir.ops.pointwise import programs as pw
from compiler.ir.ops.pointwise.shifts import shift
from compiler.ir.ops.quantized import small_types


@op("BitwiseAnd", since=18)
def bitwise_and(b: Builder, node: Node) -> Value:
    """Bits set in both."""
    return ew.binary(b, node.value(0), node.value(1), relax.op.bitwise_and, numpy=np.bitwise_and)


@op("BitwiseOr", since=18)
def bitwise_or(b: Builder, node: Node) -> Value:
    """Bits set in either."""
    return ew.binary(b, node.value(0), node.value(1), relax.op.bitwise_or, numpy=np.bitwise_or)


@op("BitwiseXor", since=18)
def bitwise_xor(b: Builder, node: Node) -> Value:
    """Bits set in one of the two."""
    return ew.binary(b, node.value(0), node.value(1), relax.op.bitwise_xor, numpy=np.bitwise_xor)


@op("BitwiseNot", since=18)
def bitwise_not(b: Builder, node: Node) -> Value:
    """Every bit flipped."""
    return ew.unary(b, node.value(0), relax.op.bitwise_not, numpy=np.bitwise_not)


@op("BitShift", since=11)
def bit_shift(b: Builder, node: Node) -> Value:
    """X shifted by Y bits; a shift out of [0, width) leaves 0, or the sign's -1 to the right."""
    return shift(b, node.value(0), node.value(1), left=node.attr("direction") == "LEFT")


def _width(dtype: str) -> int:
    return width_of(dtype) if small_types.is_small(dtype) else np.dtype(dtype).itemsize * 8


@op("BitCast", since=26)
def bit_cast(b: Builder, node: Node) -> Value:
    """The same bits as another dtype of the same width."""
    x, code = node.value(0), node.attr("to")
    if code not in CARRIED:
        node.fail("that element type is not supported", reason="dtype")
    dtype = CARRIED[code]
    if _width(dtype) != _width(x.dtype):
        node.fail(f"{x.dtype} and {dtype} differ in width", reason="dtype")
    if small_types.is_small(dtype) or small_types.is_small(x.dtype):
        return small_types.bit_cast(b, x, dtype)
    if isinstance(x, Known) and not x.symbolic:
        return Known(x.data.view(np.dtype(dtype)), dtype)
    if "bool" in (x.dtype, dtype):
        return ew.cast(b, x, dtype)
    return pw.pointwise(b, lambda item: tirx.reinterpret(dtype, item), x, name="bit_cast")

"""Integer arithmetic with fixed-point factors, as `compiler.ir.tflite.functions` has it in
ONNX's own operators.
"""

from tvm import tirx

from compiler.ir.graph.builder import Builder
from compiler.ir.graph.values import Known, Value
from compiler.ir.onnx.node import Node
from compiler.ir.onnx.registry import op
from compiler.ir.ops.pointwise.programs import in_float
from compiler.ir.ops.quantized import requantize as fixed_point
from compiler.ir.tflite.functions import DOMAIN


@op("Requantize", "RequantizeOnce", domain=DOMAIN)
def requantize(b: Builder, node: Node) -> Value:
    """Integers by a fixed-point factor, moved and clamped."""
    zero, low, high = (_integer(node, index) for index in (3, 4, 5))
    x, multiplier, exponent = (node.value(index) for index in range(3))
    dtype = node.value(3).dtype
    once = node.proto.op_type == "RequantizeOnce"
    return fixed_point.requantize(b, x, multiplier, exponent, zero, low, high, dtype, once)


def _integer(node: Node, index: int) -> int:
    value = node.value(index)
    if not isinstance(value, Known) or value.symbolic or value.data.size != 1:
        node.fail(f"input {index} has to be one constant integer", reason="data_dependent")
    return int(value.data.reshape(()))


@op("RoundAway", domain=DOMAIN)
def round_away(b: Builder, node: Node) -> Value:
    """The nearest integer, halves away from zero."""
    return in_float(b, tirx.round, node.value(0), name="round_away")

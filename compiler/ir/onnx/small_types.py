"""Runs an operator's handler on values of the narrow element types (`compiler.ir.formats`): those
that only move elements get the bytes, those that compare get the numbers.
"""

import dataclasses
from collections.abc import Callable, Sequence

import onnx
from onnx import defs

from compiler.errors import ImportFailed
from compiler.ir.formats import EXPONENTS
from compiler.ir.graph.builder import Builder
from compiler.ir.graph.values import Known, Tensor, Value
from compiler.ir.onnx.model.dtypes import CARRIED
from compiler.ir.onnx.model.lists import Content
from compiler.ir.onnx.node import Node
from compiler.ir.onnx.registry import Handler, Result
from compiler.ir.ops.quantized import small_types
from relaxd.contract.dims.tensors import storage_of

_CONVERT = frozenset(
    {"BitCast", "Cast", "CastLike", "DequantizeLinear", "GatherBlockQuantized", "QuantizeLinear"}
)
"""Operators whose handlers take such values themselves."""
_COMPARE = frozenset({"Equal", "IsInf", "IsNaN"})
"""Operators that give the same of the numbers in a wider type."""
_MOVE = frozenset(
    {
        "Compress", "Concat", "DepthToSpace", "Expand", "Flatten", "Gather", "GatherElements",
        "GatherND", "Identity", "If", "Loop", "OptionalHasElement", "Pad", "Reshape",
        "ReverseSequence", "Scan", "Shape", "Size", "Slice", "SpaceToDepth", "Split", "Squeeze",
        "TensorScatter", "Tile", "Transpose", "Unsqueeze", "Where",
    }
)  # fmt: skip
"""Operators that look at no element of such an input."""


def run(handler: Handler, b: Builder, node: Node) -> Sequence[Content | None]:
    """The handler's outputs; fails for an operator that would take bits for numbers."""
    tensors = [value for value in node.inputs if isinstance(value, Known | Tensor)]
    small = next((value for value in tensors if small_types.is_small(value.dtype)), None)
    name = node.proto.op_type
    if name in _CONVERT or (small is None and not _bodies(node)):
        return _listed(handler(b, node))
    if small is not None and name in _COMPARE:
        return _listed(handler(b, _with(node, lambda value: small_types.widen(b, value))))
    if small is not None and not _moves(node, small):
        node.fail(
            f"{node.op} of {small.dtype} is not supported",
            reason="dtype",
            hint="cast it to float32 first, or dequantize it",
        )
    outputs = _listed(handler(b, _with(node, small_types.to_storage)))
    return [
        small_types.from_storage(value, dtype or value.dtype)
        if isinstance(value, Known | Tensor)
        else value
        for value, dtype in zip(outputs, _dtypes(node, len(outputs)), strict=True)
    ]


def entering(formal: onnx.ValueInfoProto, value: Content | None) -> Content | None:
    """The value of a subgraph's input: bytes, where the subgraph declares what they hold."""
    dtype = CARRIED.get(formal.type.tensor_type.elem_type, "")
    if not isinstance(value, Known | Tensor) or not small_types.is_small(dtype):
        return value
    if value.dtype != storage_of(dtype):
        raise ImportFailed(
            f"{value.dtype} is given for the subgraph's input {formal.name!r} of {dtype}",
            reason="dtype",
        )
    return small_types.from_storage(value, dtype)


def leaving(output: onnx.ValueInfoProto, value: Content | None) -> Content | None:
    """The bytes of a subgraph's output, which must be declared to hold what they hold."""
    if not isinstance(value, Known | Tensor):
        return value
    dtype = CARRIED.get(output.type.tensor_type.elem_type, "")
    if value.dtype != dtype and (small_types.is_small(value.dtype) or small_types.is_small(dtype)):
        raise ImportFailed(
            f"the subgraph's output {output.name!r} is {value.dtype}, declared as "
            f"{dtype or 'nothing'}",
            reason="dtype",
            hint="declare the element types of the subgraph's outputs",
        )
    return small_types.to_storage(value)


def _moves(node: Node, small: Value) -> bool:
    if node.proto.domain not in ("", "ai.onnx") or node.proto.op_type not in _MOVE:
        return False
    # The type has no zero to pad with.
    return node.proto.op_type != "Pad" or node.has(2) or small.dtype != EXPONENTS


def _bodies(node: Node) -> list[onnx.GraphProto]:
    return [a for a in node.attributes.values() if isinstance(a, onnx.GraphProto)]


def _dtypes(node: Node, count: int) -> list[str | None]:
    """The dtype of each output: as the body declares it, else that of the inputs of the same type
    in the operator's schema; None where neither says.
    """
    if bodies := _bodies(node):
        outputs = bodies[0].output
        declared = [CARRIED.get(output.type.tensor_type.elem_type) for output in outputs]
        return declared[len(outputs) - count :]
    schema = defs.get_schema(node.proto.op_type, node.opset, "")
    known: dict[str, str] = {}
    for index, value in enumerate(node.inputs):
        kind = schema.inputs[min(index, len(schema.inputs) - 1)].type_str
        if isinstance(value, Known | Tensor) and known.setdefault(kind, value.dtype) != value.dtype:
            node.fail(f"{known[kind]} and {value.dtype} in one {node.op}", reason="dtype")
    outputs = schema.outputs
    return [known.get(outputs[min(i, len(outputs) - 1)].type_str) for i in range(count)]


def _with(node: Node, change: Callable[[Value], Value]) -> Node:
    inputs = (change(v) if isinstance(v, Known | Tensor) else v for v in node.inputs)
    return dataclasses.replace(node, inputs=tuple(inputs))


def _listed(result: Result) -> Sequence[Content | None]:
    return [result] if isinstance(result, Content) else result

"""A model in the QDQ format whose matmuls and convolutions by constant weights multiply the
integers themselves, and scale the sums: ConvInteger and MatMulInteger in place of operators on
floats between DequantizeLinear nodes.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from compiler.quantize.onnx.node_writer import NodeWriter, names_read

_ENDING = "__of_integers"
_BYTES = (TensorProto.INT8, TensorProto.UINT8)
_FOUR_BITS = {TensorProto.INT4: np.int8, TensorProto.UINT4: np.uint8}
"""By type of weights of convolutions, that of the bytes that stand for them: no kernel of a
convolution reads less. Those of matmuls stay as they are.
"""

Array = np.ndarray[Any, Any]


def multiply_integers(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with products of integers wherever both operands are dequantized bytes, the right
    one a constant; itself where it has none.
    """
    writer = _Writer(model)
    for node in model.graph.node:
        if not writer.multiply(node):
            writer.nodes.append(node)
    if not writer.constants:
        return model
    result = onnx.ModelProto()
    result.CopyFrom(model)
    writer.nodes = _used(writer.nodes, result.graph)
    writer.put_into(result)
    return result


@dataclass(frozen=True)
class _Bytes:
    """A dequantized tensor: the names of its integers and of their zero point, "" without one;
    their scale.
    """

    name: str
    zero: str
    scale: Array
    axis: int


class _Writer(NodeWriter):
    def __init__(self, model: onnx.ModelProto) -> None:
        super().__init__()
        graph = model.graph
        inputs = {one.name for one in graph.input}
        self.known = {one.name: one for one in graph.initializer if one.name not in inputs}
        self.producers = {name: node for node in graph.node for name in node.output}

    def multiply(self, node: onnx.NodeProto) -> bool:
        """Writes the product of a node that has such operands; gives whether it has."""
        if node.domain not in ("", "ai.onnx") or node.op_type not in ("Conv", "MatMul", "Gemm"):
            return False
        left = self._bytes(node.input[0], _BYTES)
        kinds = (*_BYTES, *_FOUR_BITS) if node.op_type == "Conv" else _BYTES
        right = self._bytes(node.input[1], kinds)
        if left is None or right is None or left.scale.size != 1 or right.name not in self.known:
            return False
        right = self._widen(right)
        weight = numpy_helper.to_array(self.known[right.name])
        attributes = {one.name: helper.get_attribute_value(one) for one in node.attribute}
        if not self._fits(node.op_type, weight, right, attributes):
            return False
        if node.op_type == "Conv":
            shape = (-1, *[1] * (weight.ndim - 2))
            self._write(node, "ConvInteger", left, right, right.name, shape, dict(attributes))
        else:
            if attributes.get("transB", 0):
                weight = np.ascontiguousarray(weight.T)
            name = self.constant(f"{node.output[0]}{_ENDING}", weight)
            self._write(node, "MatMulInteger", left, right, name, (-1,), {})
        return True

    def _fits(self, op: str, weight: Array, right: _Bytes, attributes: Mapping[str, Any]) -> bool:
        """True for weights of one scale, or one a column; of groups, without zero points."""
        if op == "Conv":
            if attributes.get("group", 1) != 1 and self._has_zeros(right):
                return False
            return weight.ndim > 2 and (right.scale.size == 1 or right.axis == 0)
        plain = all(attributes.get(name, 1.0) == 1.0 for name in ("alpha", "beta"))
        if weight.ndim != 2 or attributes.get("transA", 0) or not plain:
            return False
        columns = 0 if attributes.get("transB", 0) else 1
        return right.scale.size == 1 or right.axis % 2 == columns

    def _has_zeros(self, right: _Bytes) -> bool:
        return bool(right.zero) and bool(np.any(numpy_helper.to_array(self.known[right.zero])))

    def _write(
        self,
        node: onnx.NodeProto,
        op: str,
        left: _Bytes,
        right: _Bytes,
        weight: str,
        shape: tuple[int, ...],
        attributes: Mapping[str, Any],
    ) -> None:
        end = f"{node.output[0]}{_ENDING}"
        zeros = [left.zero, right.zero] if self._has_zeros(right) else [left.zero]
        operands = [left.name, weight, *(zeros if any(zeros) else [])]
        accumulators = self.node(op, f"{end}_sums", *operands, label=node, **attributes)
        floats = self.node("Cast", f"{end}_floats", accumulators, to=TensorProto.FLOAT)
        scale = (left.scale.reshape(-1) * right.scale.reshape(-1)).astype(np.float32)
        scales = self.constant(f"{end}_scales", scale.reshape(shape if scale.size > 1 else ()))
        bias = node.input[2] if len(node.input) > 2 else ""
        scaled = f"{end}_scaled" if bias else node.output[0]
        self.node("Mul", scaled, floats, scales)
        if bias and op == "ConvInteger":
            bias_shape = self.constant(f"{end}_shape", np.array([1, *shape], np.int64))
            bias = self.node("Reshape", f"{end}_bias", bias, bias_shape)
        if bias:
            self.node("Add", node.output[0], scaled, bias)

    def _widen(self, right: _Bytes) -> _Bytes:
        """Weights of 4 bits as bytes, others as they are."""
        dtype = _FOUR_BITS.get(self.known[right.name].data_type)
        if dtype is None:
            return right
        names = []
        for name in (right.name, right.zero):
            if name:
                array = numpy_helper.to_array(self.known[name]).astype(dtype)
                wide = self.constant(f"{name}__bytes", array)
                self.known[wide] = self.constants[wide]
            names.append(wide if name else "")
        return replace(right, name=names[0], zero=names[1])

    def _bytes(self, name: str, kinds: Collection[int]) -> _Bytes | None:
        node = self.producers.get(name)
        if node is None or node.op_type != "DequantizeLinear" or node.domain not in ("", "ai.onnx"):
            return None
        attributes = {one.name: helper.get_attribute_value(one) for one in node.attribute}
        scale = self.known.get(node.input[1])
        zero = node.input[2] if len(node.input) > 2 else ""
        if scale is None or scale.data_type != TensorProto.FLOAT or attributes.get("block_size", 0):
            return None
        # Without a zero point only the tensor itself says what its integers are.
        kind = self.known.get(zero or node.input[0])
        if kind is None or kind.data_type not in kinds:
            return None
        array = numpy_helper.to_array(scale)
        return _Bytes(node.input[0], zero, array, attributes.get("axis", 1))


def _used(nodes: list[onnx.NodeProto], graph: onnx.GraphProto) -> list[onnx.NodeProto]:
    """The nodes without DequantizeLinear nodes that nothing reads any more."""
    read = {name for node in nodes for name in names_read(node)} | {
        one.name for one in graph.output
    }
    return [n for n in nodes if n.op_type != "DequantizeLinear" or n.output[0] in read]

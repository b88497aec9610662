"""A model whose dequantized constant weights stay integers: matmuls by them as MatMulNBits, rows of
a dequantized table as dequantized rows, convolutions by integers whose results are scaled. An
import would dequantize constants once and for all.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from compiler.quantize.onnx.node_writer import NodeWriter, names_read

_ENDING = "__in_blocks"
_LEAST = 1 << 12
"""Smaller weights are not worth a kernel of their own."""
_MULTIPLE = 32
"""What the number of weights in a block is a multiple of where the model has no blocks."""
_MICROSOFT = "com.microsoft"
_BITS = {TensorProto.INT4: 4, TensorProto.UINT4: 4, TensorProto.INT8: 8, TensorProto.UINT8: 8}
_SIGNED = (TensorProto.INT4, TensorProto.INT8)
_SCALES = (TensorProto.FLOAT, TensorProto.FLOAT16)

Array = np.ndarray[Any, Any]


def keep_weights_quantized(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with matmuls by blocks, with tables that are dequantized behind Gather, and with
    convolutions that are scaled behind; itself where it has none of them.
    """
    writer = _Writer(model)
    for node in model.graph.node:
        if not (writer.multiply(node) or writer.gather(node) or writer.convolve(node)):
            writer.nodes.append(node)
    if not writer.changed:
        return model
    result = onnx.ModelProto()
    result.CopyFrom(model)
    read = {name for node in writer.nodes for name in names_read(node)}
    read |= {one.name for one in result.graph.output}
    writer.nodes = [
        node
        for node in writer.nodes
        if node.op_type != "DequantizeLinear" or node.output[0] in read
    ]
    writer.put_into(result)
    if all(one.domain != _MICROSOFT for one in result.opset_import):
        result.opset_import.append(helper.make_opsetid(_MICROSOFT, 1))
    return result


@dataclass(frozen=True)
class _Dequantized:
    """A dequantized constant: its node, integers from 0 on in an unsigned type, scales and zero
    points (each shaped as the model has them, None for the middle of the range); bits of an
    integer; block: of the node, 0 for none.
    """

    node: onnx.NodeProto
    integers: Array
    scale: Array
    zero: Array | None
    bits: int
    block: int
    axis: int

    def transpose(self) -> _Dequantized:
        """A matrix the other way round."""
        zero = None if self.zero is None else self.zero.T
        return replace(
            self, integers=self.integers.T, scale=self.scale.T, zero=zero, axis=1 - self.axis % 2
        )


class _Writer(NodeWriter):
    def __init__(self, model: onnx.ModelProto) -> None:
        super().__init__()
        inputs = {one.name for one in model.graph.input}
        self.known = {one.name: one for one in model.graph.initializer if one.name not in inputs}
        self.producers = {name: node for node in model.graph.node for name in node.output}
        self.changed = False

    def multiply(self, node: onnx.NodeProto) -> bool:
        """Writes a MatMul or Gemm by dequantized weights as one by blocks; gives whether it is
        one.
        """
        if node.op_type not in ("MatMul", "Gemm") or node.domain not in ("", "ai.onnx"):
            return False
        attributes = {one.name: helper.get_attribute_value(one) for one in node.attribute}
        right = None if attributes.get("transA", 0) else self._dequantized(node.input[1])
        if right is None or right.integers.ndim != 2:
            return False
        right = right.transpose() if attributes.get("transB", 0) else right
        table = _blocks(right)
        if table is None:
            return False
        depth, columns = right.integers.shape
        end = f"{node.input[1]}{_ENDING}{attributes.get('transB', 0) or ''}"
        parts = [self.constant(f"{end}_{name}", array) for name, array in table.arrays.items()]
        sizes = {"K": depth, "N": columns, "bits": right.bits, "block_size": table.block}
        more: dict[str, Any] = {**sizes, "domain": _MICROSOFT}
        with_bias = node.op_type == "Gemm"
        matmul = f"{node.output[0]}__matmul" if with_bias else node.output[0]
        self.node("MatMulNBits", matmul, node.input[0], *parts, label=node, **more)
        if with_bias:
            self._add_bias(node, matmul, attributes, right.scale.dtype)
        self.changed = True
        return True

    def _add_bias(
        self, node: onnx.NodeProto, matmul: str, attributes: Mapping[str, Any], dtype: Any
    ) -> None:
        """Writes the rest of a Gemm: alpha times the matmul plus beta times the bias."""

        def scale(name: str, value: str) -> str:
            factor = attributes.get(name, 1.0)
            if factor == 1:
                return value
            end = f"{node.output[0]}__{name}"
            return self.node("Mul", end, value, self.constant(end, np.array(factor, dtype)))

        scaled = scale("alpha", matmul)
        if len(node.input) > 2 and node.input[2] and attributes.get("beta", 1.0):
            self.node("Add", node.output[0], scaled, scale("beta", node.input[2]))
        else:
            self.node("Identity", node.output[0], scaled)

    def gather(self, node: onnx.NodeProto) -> bool:
        """Writes the rows of a table of one scale as rows of its integers, which are dequantized;
        gives whether it is such.
        """
        if node.op_type != "Gather" or node.domain not in ("", "ai.onnx"):
            return False
        source = self.producers.get(node.input[0])
        table = self._dequantized(node.input[0])
        if table is None or source is None or table.bits != 8 or table.scale.size != 1:
            return False
        rows = f"{node.output[0]}__integers"
        attributes = {one.name: helper.get_attribute_value(one) for one in node.attribute}
        self.node("Gather", rows, source.input[0], node.input[1], label=node, **attributes)
        self.node("DequantizeLinear", node.output[0], rows, *source.input[1:])
        self.changed = True
        return True

    def convolve(self, node: onnx.NodeProto) -> bool:
        """Writes a Conv by dequantized weights as one by their integers, whose results are scaled;
        gives whether it is one. A channel by itself has few weights, and stays.
        """
        if node.op_type != "Conv" or node.domain not in ("", "ai.onnx"):
            return False
        right = self._dequantized(node.input[1])
        integers = None if right is None else _channel_integers(right)
        if right is None or integers is None:
            return False
        end = f"{node.output[0]}{_ENDING}"
        one = self.constant(f"{end}_one", np.float32(1))
        stored = self.constant(f"{end}_integers", integers)
        weight = self.node("DequantizeLinear", f"{end}_weight", stored, one)
        attributes = {one.name: helper.get_attribute_value(one) for one in node.attribute}
        result = self.node("Conv", f"{end}_conv", node.input[0], weight, label=node, **attributes)
        self._scale_channels(node, result, right.scale, (-1, *[1] * (integers.ndim - 2)))
        self.changed = True
        return True

    def _scale_channels(
        self, node: onnx.NodeProto, result: str, scale: Array, channels: tuple[int, ...]
    ) -> None:
        """Writes the result of a Conv times the scales of its channels, and its bias."""
        end, bias = f"{node.output[0]}{_ENDING}", node.input[2] if len(node.input) > 2 else ""
        scales = self.constant(f"{end}_scale", scale.reshape(channels if scale.size > 1 else ()))
        scaled = self.node("Mul", f"{end}_scaled" if bias else node.output[0], result, scales)
        if bias:
            shape = self.constant(f"{end}_shape", np.array([1, *channels], np.int64))
            added = self.node("Reshape", f"{end}_bias", bias, shape)
            self.node("Add", node.output[0], scaled, added)

    def _dequantized(self, name: str) -> _Dequantized | None:
        node = self.producers.get(name)
        if node is None or node.op_type != "DequantizeLinear":
            return None
        data, scale = (self.known.get(one) for one in node.input[:2])
        zero = node.input[2] if len(node.input) > 2 else ""
        if data is None or data.data_type not in _BITS or (zero and zero not in self.known):
            return None
        if scale is None or scale.data_type not in _SCALES or int(np.prod(data.dims)) < _LEAST:
            return None
        attributes = {one.name: helper.get_attribute_value(one) for one in node.attribute}
        if attributes.get("output_dtype", scale.data_type) not in (0, scale.data_type):
            return None
        signed, bits = data.data_type in _SIGNED, _BITS[data.data_type]
        return _Dequantized(
            node,
            _unsigned(data, bits, signed),
            numpy_helper.to_array(scale),
            _zeros(self.known, zero, bits, signed),
            bits,
            attributes.get("block_size", 0),
            attributes.get("axis", 1),
        )


def _channel_integers(right: _Dequantized) -> Array | None:
    """The integers of a Conv's weights less their zero points as int8, None where they do not fit,
    or where scales are not float32 of the tensor or its output channels.
    """
    rank, has_rows = right.integers.ndim, right.scale.size > 1
    if right.block or right.scale.dtype != np.float32 or (has_rows and right.axis != 0):
        return None
    if rank < 3 or right.integers.shape[1] == 1:
        return None
    zero = np.array(1 << right.bits - 1) if right.zero is None else right.zero
    if any(part.size not in (1, right.integers.shape[0]) for part in (right.scale, zero)):
        return None
    zero = zero.reshape((-1, *[1] * (rank - 1)) if zero.size > 1 else ())
    centred = right.integers.astype(np.int16) - zero
    fits = centred.min() >= -128 and centred.max() <= 127
    return centred.astype(np.int8) if fits else None


def _unsigned(tensor: onnx.TensorProto, bits: int, signed: bool) -> Array:
    values = numpy_helper.to_array(tensor).astype(np.int16)
    return np.asarray(values + (signed << bits - 1)).astype(np.uint8)


def _zeros(
    known: Mapping[str, onnx.TensorProto], name: str, bits: int, signed: bool
) -> Array | None:
    """Zero points as the unsigned integers have them, None where all are in the middle."""
    zero = _unsigned(known[name], bits, signed) if name else np.uint8(signed << bits - 1)
    return None if np.all(zero == 1 << bits - 1) else np.asarray(zero)


@dataclass(frozen=True)
class _Blocks:
    """The inputs of MatMulNBits beside the left side, by name, and its block size."""

    block: int
    arrays: Mapping[str, Array]


def _blocks(right: _Dequantized) -> _Blocks | None:
    """Weights [K, N] with scales for blocks of the depth, for columns, or one; None for others."""
    if right.integers.ndim != 2:
        return None
    depth, columns = right.integers.shape
    if right.block:
        if right.axis % 2 or right.block % 16:
            return None
        block = right.block
    elif right.scale.size == 1 or right.axis % 2:
        block = -(-depth // _MULTIPLE) * _MULTIPLE
    else:
        return None
    blocks = -(-depth // block)
    for part in (right.scale, right.zero):
        # What fits nothing is refused by the import.
        fits = part is None or part.size == 1 or part.shape == (blocks, columns)
        if not fits and (right.block or part is None or part.shape != (columns,)):
            return None

    def spread(values: Array) -> Array:
        """Scales or zero points [N, blocks]."""
        return np.broadcast_to(values, (blocks, columns)).T

    padded = np.full((columns, blocks * block), 1 << right.bits - 1, np.uint8)
    padded[:, :depth] = right.integers.T
    arrays = {
        "weights": _packed(padded, right.bits).reshape(columns, blocks, -1),
        "scales": np.ascontiguousarray(spread(right.scale)),
    }
    if right.zero is not None:
        arrays["zeros"] = _packed(spread(right.zero), right.bits)
    return _Blocks(block, arrays)


def _packed(numbers: Array, bits: int) -> Array:
    """Rows of numbers as bytes, of 4 bits two each, the first in the lower half."""
    if bits == 8:
        return np.ascontiguousarray(numbers)
    even = np.pad(numbers, [(0, 0), (0, numbers.shape[1] % 2)])
    return np.asarray(even[:, ::2] | even[:, 1::2] << np.uint8(4))

"""Block-wise quantized matrices of ONNX Runtime's own domain, for matmul and gather."""

from typing import Any

import numpy as np

from compiler.ir.graph.builder import Builder
from compiler.ir.graph.values import Known, Value
from compiler.ir.onnx.model.matmuls import INT8_LEVEL, LEVEL
from compiler.ir.onnx.node import Node
from compiler.ir.onnx.operators.contrib import MICROSOFT
from compiler.ir.onnx.operators.indexing import indexes
from compiler.ir.onnx.registry import op
from compiler.ir.ops.math import linear
from compiler.ir.ops.pointwise import elementwise as ew
from compiler.ir.ops.quantized import block_matmul
from compiler.ir.ops.quantized.block_matmul import Blocks
from compiler.ir.ops.shape import indexing, layout

Array = np.ndarray[Any, Any]


@op("MatMulNBits", domain=MICROSOFT)
def matmul_blocks(b: Builder, node: Node) -> Value:
    """A times the transpose of a matrix of 2-, 4- or 8-bit numbers with a scale and zero point a
    block; those of 2 bits are unpacked at import.
    """
    x = node.value(0)
    if node.has(4):
        node.fail(
            "group indices (g_idx) are not supported",
            reason="unsupported_input",
            hint="quantize without act_order",
        )
    if node.attr("weight_prepacked", 0):
        node.fail(
            "weights laid out for one GPU are not supported",
            reason="unsupported_form",
            hint="export with weight_prepacked=0",
        )
    table = _weights(node)
    if table.bits == 2:
        weight = block_matmul.dequantize(table).astype(np.dtype(x.dtype))
        result = linear.matmul(b, x, Known(np.ascontiguousarray(weight.T), x.dtype))
    else:
        quantizes = node.attr(LEVEL, 0) == INT8_LEVEL
        b.quantizes_blocks |= quantizes
        result = block_matmul.matmul(b, x, table, quantizes)
    return ew.add(b, result, node.value(5)) if node.has(5) else result


def _weights(node: Node) -> Blocks:
    depth, columns, block = (node.attr(name) for name in ("K", "N", "block_size"))
    bits, blocks = node.attr("bits", 4), -(-depth // block)
    if bits not in (2, 4, 8):
        node.fail(f"weights of {bits} bits are not supported", reason="unsupported_dtype")
    numbers = constant(node, 1).reshape(columns, blocks, -1)
    zeros = None
    if node.has(3):
        points = constant(node, 3)
        zeros = (
            parts_of(points.reshape(columns, -1), bits)[:, :blocks]
            if points.dtype == np.uint8
            else points.reshape(columns, blocks).astype(np.float32)
        )
    scales = constant(node, 2).reshape(columns, blocks).astype(np.float32)
    return Blocks(bits, block, depth, numbers, scales, zeros)


@op("GatherBlockQuantized", domain=MICROSOFT)
def gather_block_quantized(b: Builder, node: Node) -> Value:
    """Slices, at the indices, of a table whose numbers have a scale and zero point a block."""
    data, indices, scales = node.value(0), node.value(1), node.value(2)
    bits = node.attr("bits", 4) if data.dtype in ("uint8", "int8") else 4
    rank = len(data.shape)
    axis = layout.axis_of(node.attr("gather_axis", 0), rank)
    along = layout.axis_of(node.attr("quantize_axis", 1), rank)
    extent = data.shape[axis]
    indexes(b, node, 1, extent)
    positions = indexing.check(b, indices, extent)
    if bits not in (4, 8):
        node.fail(f"tables of {bits} bits are not supported", reason="unsupported_dtype")
    if rank == 2 and axis == 0 and along == 1 and data.dtype == "uint8":
        return ew.cast(b, block_matmul.rows(b, positions, _table(node, bits)), scales.dtype)
    real = _unpacked(node, bits, along).astype(np.dtype(scales.dtype))
    return layout.take(b, Known(real, scales.dtype), positions, axis)


def _table(node: Node, bits: int) -> Blocks:
    """A table of bytes whose rows are cut into blocks."""
    data, scales = constant(node, 0), constant(node, 2).astype(np.float32)
    block, (columns, stored) = node.attr("block_size", 128), data.shape
    depth, blocks = stored * 8 // bits, scales.shape[1]
    padded = np.zeros((columns, blocks * block * bits // 8), np.uint8)
    padded[:, :stored] = data
    zeros = None
    if node.has(3):
        zeros = parts_of(constant(node, 3).reshape(columns, -1), bits)[:, :blocks]
    return Blocks(bits, block, depth, padded.reshape(columns, blocks, -1), scales, zeros)


def _unpacked(node: Node, bits: int, along: int) -> Array:
    """The whole table as float32; numbers of bytes are packed along the last axis."""
    data, scales = constant(node, 0), constant(node, 2).astype(np.float32)
    zeros = constant(node, 3) if node.has(3) else None
    middle = 0
    if data.dtype == np.uint8:
        data, zeros = parts_of(data, bits), None if zeros is None else parts_of(zeros, bits)
        middle = 1 << (bits - 1)

    def spread(values: Array) -> Array:
        wide = np.repeat(values.astype(np.float32), node.attr("block_size", 128), along)
        return np.take(wide, np.arange(data.shape[along]), along)

    if zeros is not None:
        zeros = np.take(zeros, np.arange(scales.shape[along]), along)
    apart = data.astype(np.float32) - (middle if zeros is None else spread(zeros))
    return np.ascontiguousarray(apart * spread(scales))


def parts_of(packed: Array, bits: int) -> Array:
    """The numbers in each byte of the last axis, the lowest bits first."""
    shifts = np.arange(0, 8, bits, dtype=np.uint8)
    numbers = packed[..., None] >> shifts & np.uint8((1 << bits) - 1)
    return numbers.reshape(*packed.shape[:-1], -1)


def constant(node: Node, index: int) -> Array:
    """A required input, which has to be stored in the model."""
    value = node.value(index)
    if not isinstance(value, Known) or value.symbolic:
        node.fail(
            f"input {index} must be a constant",
            reason="unsupported_input",
            hint="store the quantized weights in the model",
        )
    return value.data

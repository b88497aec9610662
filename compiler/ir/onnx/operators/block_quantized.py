"""Block-wise quantized matrices of ONNX Runtime's own domain, for matmul and gather."""

import math
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

_WORD = 8
"""Codes that kernels read at once; those of a word have one scale."""
_FP4 = np.array([0, 1 / 192, 2 / 3, 1, 1 / 3, 1 / 2, 1 / 6, 1 / 4], np.float32)
_NF4 = np.array(
    [-1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635,
     -0.18477343022823334, -0.09105003625154495, 0.0, 0.07958029955625534, 0.16093020141124725,
     0.24611230194568634, 0.33791524171829224, 0.44070982933044434, 0.5626170039176941,
     0.7229568362236023, 1.0],
    np.float32,
)  # fmt: skip
_CODEBOOKS = {0: np.concatenate([_FP4, -_FP4]), 1: _NF4}
"""By quant_type, the values of the codes: floats of 4 bits with the sign in the highest, and
quantiles of the normal distribution (arXiv 2305.14314).
"""


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


@op("MatMulBnb4", domain=MICROSOFT)
def matmul_codes(b: Builder, node: Node) -> Value:
    """A times the transpose of a matrix of 4-bit codes, FP4 or NF4, of which so many one after
    another share a scale, over the ends of its rows.
    """
    x, depth, columns = node.value(0), node.attr("K"), node.attr("N")
    codebook, block = _codebook(node), node.attr("block_size")
    codes, scales = _codes(node, depth, columns, block)
    own = math.gcd(depth, block)
    if own % _WORD == 0:
        # Where rows end within a block, its scale is that of several smaller ones.
        each = np.repeat(scales, block // own)[: columns * depth // own].reshape(columns, -1)
        packed = (codes[:, ::2] | codes[:, 1::2] << 4).reshape(columns, depth // own, -1)
        table = Blocks(4, own, depth, packed, each, None, codebook)
        return block_matmul.matmul(b, x, table, False)
    spread = np.repeat(scales, block)[: columns * depth].reshape(columns, depth)
    weight = (codebook[codes] * spread).T.astype(np.dtype(x.dtype))
    return linear.matmul(b, x, Known(np.ascontiguousarray(weight), x.dtype))


def _codes(node: Node, depth: int, columns: int, block: int) -> tuple[Array, Array]:
    """Codes [columns, depth] and the float32 scales of blocks of them."""
    if not node.attr("transB", 1):
        node.fail(
            "weights that are not transposed are not supported",
            reason="unsupported_form",
            hint="write them with onnxruntime.quantization.matmul_bnb4_quantizer",
        )
    if min(depth, columns, block) < 1:
        node.fail("K, N and block_size must be at least 1", reason="attribute")
    packed, scales = (constant(node, index).reshape(-1) for index in (1, 2))
    count = columns * depth
    wanted = -(-count // 2), -(-count // block)
    if (packed.size, scales.size) != wanted or packed.dtype != np.uint8:
        node.fail(
            f"{columns} rows of {depth} codes in blocks of {block} take {wanted[0]} bytes and "
            f"{wanted[1]} scales, these are {packed.size} {packed.dtype} and {scales.size}",
            reason="shape",
        )
    # The first of two codes is in the upper half of a byte.
    codes: Array = parts_of(packed, 4).reshape(-1, 2)[:, ::-1].reshape(-1)
    return codes[:count].reshape(columns, depth), scales.astype(np.float32)


def _codebook(node: Node) -> Array:
    kind = node.attr("quant_type")
    if kind not in _CODEBOOKS:
        node.fail(
            f"quant_type {kind} is neither 0 (FP4) nor 1 (NF4)",
            reason="attribute",
        )
    return _CODEBOOKS[kind]


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

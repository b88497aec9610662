"""Mixtures of experts of ONNX Runtime's own domain, with float and block-wise quantized weights.

What ONNX Runtime's kernels for processors refuse, or compute otherwise than the operator is
specified, is refused here: nothing could be verified against it.
"""

import math
from typing import Any

import numpy as np
from tvm import tirx

from compiler.ir.graph.builder import Builder
from compiler.ir.graph.values import Value
from compiler.ir.onnx.model.matmuls import INT8_LEVEL
from compiler.ir.onnx.node import Node
from compiler.ir.onnx.operators.block_quantized import constant, parts_of
from compiler.ir.onnx.operators.contrib import MICROSOFT
from compiler.ir.onnx.registry import op
from compiler.ir.ops.attention import experts, routing
from compiler.ir.ops.attention.attention import restate
from compiler.ir.ops.attention.experts import Activation, Layer
from compiler.ir.ops.pointwise import activation as fn
from compiler.ir.ops.pointwise import elementwise as ew
from compiler.ir.ops.pointwise.programs import like
from compiler.ir.ops.shape import layout
from compiler.ir.shapes import extents as ex

Array = np.ndarray[Any, Any]

_PLAIN: dict[str, Activation] = {
    "relu": lambda x: tirx.max(x, like(x, 0)),
    "gelu": lambda x: fn.gelu(x, by_tanh=True),
    "silu": lambda x: fn.swish(x, 1.0),
    "identity": lambda x: x,
}
_GATED = "swiglu"
_INTERLEAVED = 1
"""The swiglu_fusion whose gates and what they scale alternate in the rows of FC1."""
_BITS = (2, 4, 8)


@op("MoE", domain=MICROSOFT)
def mixture_of_experts(b: Builder, node: Node) -> Value:
    """Two layers of floats, of the k experts that a softmax over all of them chooses for a token;
    x and the result [tokens, hidden] or [batch, sequence, hidden], router [tokens, experts].
    """
    _refuse(node, third=6)
    weights, down = (_cube(node, constant(node, index)) for index in (2, 4))
    count, inner = down.shape[0], down.shape[2]
    first = experts.real_layer(
        _apart(node, _sized(node, 2, weights, (count, _wide(node, inner), None))),
        _bias(node, 3, (count, _wide(node, inner)), gated=True),
        _parts(node),
    )
    second = experts.real_layer(
        _sized(node, 4, down, (count, first.depth, inner)),
        _bias(node, 5, (count, first.depth)),
        1,
    )
    of_chosen = bool(node.attr("normalize_routing_weights", 0))
    return _mixture(b, node, first, second, None, of_chosen)


@op("QMoE", domain=MICROSOFT)
def quantized_mixture_of_experts(b: Builder, node: Node) -> Value:
    """`mixture_of_experts` with weights of 2, 4 or 8 bits, a scale and zero point for each column
    or each block of it; they stay packed and are multiplied in float32.

    A token's shares are the softmax of the chosen experts' scores, whatever
    normalize_routing_weights is, as ONNX Runtime has it; router_weights replace them.
    """
    _refuse(node, third=8)
    _refuse_packed(node)
    bits, block = node.attr("expert_weight_bits", 4), node.attr("block_size", 0)
    # ONNX Runtime quantizes the tokens to 8 bits here; computing in floats is more accurate.
    quantizes = bits == 8 or (bits == 4 and node.attr("accuracy_level", 0) == INT8_LEVEL)
    b.quantized |= block > 0 and quantizes
    numbers, down = (_cube(node, constant(node, index)) for index in (2, 5))
    count, inner = down.shape[0], down.shape[2] * 8 // bits
    depth = numbers.shape[2] * 8 // bits
    first = _packed(node, (2, 3, 4, 11), (count, _wide(node, inner), depth), gated=True)
    second = _packed(node, (5, 6, 7, 12), (count, depth, inner), gated=False)
    router = node.optional(14)
    of_chosen = router is None or bool(node.attr("normalize_routing_weights", 0))
    return _mixture(b, node, first, second, router, of_chosen)


def _mixture(
    b: Builder, node: Node, first: Layer, second: Layer, router: Value | None, of_chosen: bool
) -> Value:
    """The result in the shape and dtype of x."""
    x = node.value(0)
    b.same(x.shape[-1], first.depth, f"the experts take {first.depth} columns")
    tokens = b.facts.simplify(ex.prod(x.shape[:-1]))
    flat = layout.reshape(b, ew.cast(b, x, "float32"), [tokens, first.depth])
    shape = [tokens, first.numbers.shape[0]]
    scores, weights = (
        None
        if value is None
        else restate(b, ew.cast(b, value, "float32"), shape, "the experts' scores")
        for value in (node.value(1), router)
    )
    assert scores is not None
    routes = routing.choose(b, scores, _chosen(node, first.numbers.shape[0]), weights, of_chosen)
    result = experts.mixture(b, flat, routes, first, second, _activation(node))
    return ew.cast(b, layout.reshape(b, result, x.shape), x.dtype)


def _chosen(node: Node, count: int) -> int:
    k = int(node.attr("k", 1))
    if not 1 <= k <= count:
        node.fail(f"k is {k}, of {count} experts", reason="attribute")
    return k


def _refuse(node: Node, third: int) -> None:
    """Refuse the forms that ONNX Runtime's kernels do not compute; third: the input of FC3."""
    fusion, name = node.attr("swiglu_fusion", 0), _name(node)
    if name != _GATED and name not in _PLAIN:
        node.fail(
            f"the activation {name!r} is not supported",
            reason="unsupported_activation",
            hint=f"use {', '.join((*_PLAIN, _GATED))}",
        )
    if node.has(third):
        node.fail(
            "a third layer (fc3) is not supported",
            reason="unsupported_form",
            hint="export with swiglu_fusion=1, which stores it in the first",
        )
    if fusion != (_INTERLEAVED if name == _GATED else 0):
        node.fail(
            f"swiglu_fusion={fusion} is not supported with the activation {name!r}",
            reason="unsupported_form",
            hint="export swiglu with swiglu_fusion=1, other activations with 0",
        )
    if node.attr("use_sparse_mixer", 0):
        node.fail(
            "the sparse mixer is not supported",
            reason="unsupported_form",
            hint="export with use_sparse_mixer=0, or experts as plain nodes",
        )
    for index, rank in ((0, (2, 3)), (1, (2,))):
        if len(node.value(index).shape) not in rank:
            node.fail(f"input {index} is of rank {len(node.value(index).shape)}", reason="shape")


def _refuse_packed(node: Node) -> None:
    """Refuse what only kernels for GPUs compute."""
    kind = node.attr("quant_type", "int")
    if kind != "int":
        node.fail(
            f"weights of the type {kind} are not supported",
            reason="unsupported_dtype",
            hint="quantize the experts to integers of 4 or 8 bits (quant_type=int)",
        )
    if node.attr("weights_prepacked", -1) == 1:
        node.fail(
            "weights laid out for one GPU are not supported",
            reason="unsupported_form",
            hint="export with weights_prepacked=0",
        )
    bits = node.attr("expert_weight_bits", 4)
    others = [node.attr(f"fc{layer}_expert_weight_bits", bits) for layer in (1, 2, 3)]
    if bits not in _BITS or others != [bits] * 3:
        node.fail(
            f"weights of {', '.join(map(str, (bits, *others)))} bits are not supported",
            reason="unsupported_dtype",
            hint="export all experts with 2, 4 or 8 bits",
        )
    for index in range(15, 21):
        if node.has(index):
            node.fail(
                f"the scales of input {index} are not supported",
                reason="unsupported_input",
                hint="quantize with scales of the weights alone",
            )


def _packed(
    node: Node, inputs: tuple[int, int, int, int], shape: tuple[int, int, int], gated: bool
) -> Layer:
    """The layer of those inputs (numbers, scales, bias, zero points), whose reals have the shape
    [experts, rows, depth].
    """
    bits, block = node.attr("expert_weight_bits", 4), node.attr("block_size", 0)
    (count, rows, depth), (weights, scales, bias, points) = shape, inputs
    each = 8 // bits
    if block > 0 and (depth % block or block % each):
        node.fail(
            f"blocks of {block} numbers do not divide a depth of {depth}",
            reason="attribute",
            hint="quantize with a block_size that divides hidden and intermediate size",
        )
    blocks = depth // block if block > 0 else 1
    numbers = _sized(node, weights, constant(node, weights), (count, rows, depth // each))
    if numbers.dtype != np.uint8:
        node.fail(f"input {weights} is {numbers.dtype}, not uint8", reason="unsupported_dtype")
    of_blocks = (count, rows, blocks) if block > 0 else (count, rows)
    real = _sized(node, scales, constant(node, scales), of_blocks).reshape(count, rows, blocks)
    zeros = None
    if node.has(points):
        shape_of_points = (*of_blocks[:-1], -(-of_blocks[-1] // each))
        unpacked = parts_of(_sized(node, points, constant(node, points), shape_of_points), bits)
        zeros = unpacked[..., : of_blocks[-1]].reshape(count, rows, blocks)
    if gated:
        numbers, real = _apart(node, numbers), _apart(node, real)
        zeros = None if zeros is None else _apart(node, zeros)
    offset = _bias(node, bias, (count, rows), gated)
    return experts.packed_layer(bits, numbers, real, zeros, offset, _parts(node) if gated else 1)


def _cube(node: Node, weights: Array) -> Array:
    if weights.ndim != 3:
        node.fail(f"weights of rank {weights.ndim}, not 3", reason="shape")
    return weights


def _sized(node: Node, index: int, array: Array, shape: tuple[int | None, ...]) -> Array:
    """The array, which has to have the shape, None for any extent."""
    wanted = tuple(
        have if want is None else want
        for have, want in zip((*array.shape, *[0] * len(shape)), shape, strict=False)
    )
    if array.shape != wanted:
        node.fail(
            f"input {index} has the shape {list(array.shape)} and must have {list(wanted)}",
            reason="shape",
        )
    return array


def _bias(node: Node, index: int, shape: tuple[int, int], gated: bool = False) -> Array | None:
    if not node.has(index):
        return None
    bias = _sized(node, index, constant(node, index), shape)
    return _apart(node, bias) if gated else bias


def _name(node: Node) -> str:
    return str(node.attr("activation_type", "relu"))


def _parts(node: Node) -> int:
    """Outputs of the first layer that lie in one."""
    return 2 if _name(node) == _GATED else 1


def _wide(node: Node, inner: int) -> int:
    """Rows of the first layer."""
    return _parts(node) * inner


def _apart(node: Node, rows: Array) -> Array:
    """Axis 1 with all gates before all that they scale, where they alternate."""
    if _parts(node) == 1:
        return rows
    return np.concatenate([rows[:, 0::2], rows[:, 1::2]], 1)


def _activation(node: Node) -> Activation:
    name = _name(node)
    if name != _GATED:
        return _PLAIN[name]
    alpha, beta = node.attr("activation_alpha", 1.0), node.attr("activation_beta", 0.0)
    limit = float(node.attr("swiglu_limit", math.inf))

    def gated(gate: Any, value: Any) -> Any:
        if not math.isinf(limit):
            gate = tirx.min(gate, like(gate, limit))
            value = tirx.max(tirx.min(value, like(value, limit)), like(value, -limit))
        return fn.swish(gate, alpha) * (value + like(value, beta))

    return gated

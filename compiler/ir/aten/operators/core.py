"""Core ATen's own forms of operators, as decomposed programs of torch.export have them, and the
assertions that such programs carry.
"""

import math
from typing import Any

from tvm.ir import Expr as PrimExpr

from compiler.ir.aten.node import Node, Spectrum
from compiler.ir.aten.operands import scalar, to_float
from compiler.ir.aten.operators.normalization import refuse_training
from compiler.ir.aten.operators.shapes import item
from compiler.ir.aten.registry import op, plain
from compiler.ir.graph.builder import Builder
from compiler.ir.graph.values import Value
from compiler.ir.ops.math import fourier
from compiler.ir.ops.nn import conv
from compiler.ir.ops.nn import norm as nn_norm
from compiler.ir.ops.pointwise import elementwise as ew
from compiler.ir.ops.quantized import dequantized
from compiler.ir.ops.shape import layout
from compiler.ir.shapes import extents as ex


@op("_to_copy")
def to_copy(b: Builder, node: Node) -> Value:
    """A copy, of another dtype where one is named."""
    x = node.value("self")
    dtype = node.dtype("dtype", x.dtype)
    return x if dtype == x.dtype else dequantized.cast(b, x, dtype)


@op("_local_scalar_dense")
def local_scalar(b: Builder, node: Node) -> Any:
    """The number in a tensor of one element."""
    return item(b, node)


@op("native_group_norm")
def native_group_norm(b: Builder, node: Node) -> list[Any]:
    """group_norm of [N, C, ..], with the mean and inverse standard deviation of each group."""
    weight, bias, eps = node.optional("weight"), node.optional("bias"), node.float("eps")
    groups = node.int("group")
    return list(nn_norm.group_norm_moments(b, node.value("input"), weight, bias, groups, eps))


@op("_native_batch_norm_legit")
def batch_norm_of_batch(b: Builder, node: Node) -> list[Any]:
    """Batch normalisation by the batch's own statistics, as instance norm is decomposed to."""
    if not node.bool("training") or node.has("running_mean"):
        node.fail(
            "batch normalisation that also changes running statistics is not supported",
            reason="unsupported_form",
            hint="export the model in evaluation mode",
        )
    x = node.value("input")
    weight, bias = (
        None if value is None else conv.per_channel(b, value, x)
        for value in (node.optional("weight"), node.optional("bias"))
    )
    axes = [axis for axis in range(len(x.shape)) if axis != 1]
    normal, *statistics = nn_norm.layer_norm_moments(b, x, weight, bias, axes, node.float("eps"))
    return [normal, *(layout.reshape(b, value, [x.shape[1]]) for value in statistics)]


@op("native_dropout")
def native_dropout(b: Builder, node: Node) -> list[Any]:
    """Self: a compiled model is in evaluation mode."""
    refuse_training(node)
    return [node.ref("input"), None]


@op("_fft_r2c")
def real_transform(b: Builder, node: Node) -> Spectrum:
    """The first half of the transform of a real signal along one axis."""
    axes = node.ints("dim")
    if len(axes) != 1 or not node.bool("onesided"):
        node.fail(
            "transforms of several axes, or of both sides, are not supported",
            reason="unsupported_form",
        )
    x = to_float(b, node.value("self"))
    axis, rank = node.as_axis(axes[0], len(x.shape)), len(x.shape)
    forth = [*(index for index in range(rank) if index != axis), axis]
    turned = layout.transpose(b, x, forth)
    length = turned.shape[-1]
    mode = node.int("normalization")
    if mode and not isinstance(length, int):
        node.fail(
            "a normalised transform of a symbolic length is not supported",
            reason="unsupported_form",
        )
    factor = {0: 1.0, 1: 1 / math.sqrt(int(length)), 2: 1 / int(length)}[mode] if mode else 1.0
    bins = b.facts.simplify(ex.add(ex.floordiv(length, 2), 1))
    parts = fourier.transform(b, (turned, None), length, bins, False)
    back = [forth.index(index) for index in range(rank)]
    scaled = [
        part if factor == 1 else ew.multiply(b, part, scalar(b, factor, part.dtype))
        for part in parts
    ]
    return Spectrum(*(layout.transpose(b, part, back) for part in scaled))


@plain("_assert_scalar")
def assert_scalar(b: Builder, node: Node) -> None:
    """A condition on sizes, which every run checks."""
    condition = node.args[0]
    if isinstance(condition, PrimExpr):
        b.require(condition, f"the model asserts: {node.text('assert_msg')[:200]}")
    elif not condition:
        node.fail(f"the model asserts: {node.text('assert_msg')[:200]}", reason="raises")


@plain("sym_constrain_range", "sym_constrain_range_for_size")
def constrain_range(b: Builder, node: Node) -> None:
    """A range of a size, which every run checks."""
    size = node.args[0]
    if not isinstance(size, (int, PrimExpr)):
        return
    least, most = node.get("min", None), node.get("max", None)
    if isinstance(least, int):
        b.require(ex.less_equal(least, size), f"the model asserts a size of at least {least}")
    if isinstance(most, int):
        b.require(ex.less_equal(size, most), f"the model asserts a size of at most {most}")


@op("_assert_async")
def assert_tensor(b: Builder, node: Node) -> None:
    """A condition on values is not checked: the results where it holds are the same."""

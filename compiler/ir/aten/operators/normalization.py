"""Normalisations."""

from typing import Any

import numpy as np

from compiler.ir.aten.memory import Ref, Step
from compiler.ir.aten.node import Node
from compiler.ir.aten.operands import scalar
from compiler.ir.aten.registry import op, view
from compiler.ir.graph.builder import Builder
from compiler.ir.graph.values import Known, Value
from compiler.ir.ops.math import reduce as rd
from compiler.ir.ops.nn import conv
from compiler.ir.ops.nn import norm as nn_norm
from compiler.ir.ops.pointwise import elementwise as ew


@op("batch_norm", "_native_batch_norm_legit_no_training", "native_batch_norm")
def batch_norm(b: Builder, node: Node) -> Any:
    """By the running statistics, for each channel of [N, C, ..]."""
    if node.bool("training", False):
        node.fail(
            "batch normalisation in training mode is not supported",
            reason="unsupported_form",
            hint="save the model in evaluation mode",
        )
    x, eps = node.value("input"), node.float("eps")
    mean, variance = node.value("running_mean"), node.value("running_var")
    weight = _or_ones(node.optional("weight"), mean)
    bias = _or_zeros(node.optional("bias"), mean)
    result = nn_norm.batch_norm(b, x, weight, bias, mean, variance, eps)
    if len(list(node.raw.outputs())) != 3:
        return result
    # Outside of training there are no statistics of the batch.
    none = Known(np.zeros(0, np.float32), "float32") if x.dtype == "float32" else None
    return [result, none, none]


def _or_ones(weight: Value | None, like: Value) -> Value:
    return weight if weight is not None else _constant(like, 1)


def _or_zeros(bias: Value | None, like: Value) -> Value:
    return bias if bias is not None else _constant(like, 0)


def _constant(like: Value, value: int) -> Value:
    return Known(
        np.full([int(extent) for extent in like.shape], value, np.dtype(like.dtype)), like.dtype
    )  # type: ignore[arg-type]


@op("layer_norm")
def layer_norm(b: Builder, node: Node) -> Value:
    """Over the last axes, as many as normalized_shape has."""
    return _layer_norm(b, node)


@op("native_layer_norm")
def native_layer_norm(b: Builder, node: Node) -> list[Value]:
    """layer_norm with its mean and inverse standard deviation."""
    x = node.value("input")
    axes = list(range(len(x.shape) - len(node.items("normalized_shape")), len(x.shape)))
    normal, mean, inverse = nn_norm.layer_norm_moments(
        b, x, node.optional("weight"), node.optional("bias"), axes, node.float("eps")
    )
    return [normal, mean, inverse]


def _layer_norm(b: Builder, node: Node) -> Value:
    x = node.value("input")
    axis = len(x.shape) - len(node.items("normalized_shape"))
    weight, bias = node.optional("weight"), node.optional("bias")
    if weight is None and bias is None and all(isinstance(e, int) for e in x.shape[axis:]):
        weight = Known(np.ones([int(e) for e in x.shape[axis:]], np.dtype(x.dtype)), x.dtype)  # type: ignore[arg-type]
    return nn_norm.layer_norm(b, x, weight, bias, axis, node.float("eps"))


@op("rms_norm")
def rms_norm(b: Builder, node: Node) -> Value:
    """Over the root of the mean of squares on the last axes; eps None is the dtype's own."""
    x = node.value("input")
    axis = len(x.shape) - len(node.items("normalized_shape"))
    eps = node.float("eps") if node.has("eps") else float(np.finfo(np.dtype(x.dtype)).eps)
    weight = node.optional("weight")
    return nn_norm.rms_norm(
        b, x, scalar(b, 1, x.dtype) if weight is None else weight, axis, eps, nn_norm.wide(x.dtype)
    )


@op("group_norm")
def group_norm(b: Builder, node: Node) -> Value:
    """Over each group of channels of [N, C, ..] with its spatial axes."""
    weight, bias, eps = node.optional("weight"), node.optional("bias"), node.float("eps")
    groups = node.int("num_groups")
    return nn_norm.group_norm_moments(b, node.value("input"), weight, bias, groups, eps)[0]


@op("instance_norm")
def instance_norm(b: Builder, node: Node) -> Value:
    """Over the spatial axes of [N, C, ..], by their own statistics or the running ones."""
    x = node.value("input")
    if not node.bool("use_input_stats"):
        mean = node.value("running_mean")
        weight, bias = (
            _or_ones(node.optional("weight"), mean),
            _or_zeros(node.optional("bias"), mean),
        )
        return nn_norm.batch_norm(
            b, x, weight, bias, mean, node.value("running_var"), node.float("eps")
        )
    weight_, bias_ = (
        None if v is None else conv.per_channel(b, v, x)
        for v in (node.optional("weight"), node.optional("bias"))
    )
    return nn_norm.layer_norm_moments(
        b, x, weight_, bias_, list(range(2, len(x.shape))), node.float("eps")
    )[0]


@op("_weight_norm")
def weight_norm(b: Builder, node: Node) -> Value:
    """g * v / norm of v over all axes but one."""
    v, g = node.value("v"), node.value("g")
    axis = node.axis("dim", len(v.shape), 0)
    axes = [i for i in range(len(v.shape)) if i != axis]
    root = nn_norm.sqrt(b, rd.reduce(b, ew.multiply(b, v, v), "sum", axes, True))
    return ew.multiply(b, v, ew.divide(b, g, root))


@view("dropout", "feature_dropout", "alpha_dropout", "feature_alpha_dropout")
def dropout(b: Builder, node: Node) -> Step:
    """Self: a compiled model is in evaluation mode."""
    refuse_training(node)
    return lambda b, x: x


@op("dropout_", "feature_dropout_", "alpha_dropout_", "feature_alpha_dropout_")
def keep_all(b: Builder, node: Node) -> Ref:
    """Self, as it is."""
    refuse_training(node)
    return node.ref(node.names[0])


def refuse_training(node: Node) -> None:
    """Fail for dropout that drops something."""
    if node.has("train") and node.bool("train") and node.float("p") != 0:
        node.fail(
            "dropout in training mode is not supported",
            reason="unsupported_form",
            hint="save the model in evaluation mode",
        )

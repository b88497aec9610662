"""ONNX normalisations, softmax and dropout."""

from collections.abc import Sequence

from tvm import te, tirx

from compiler.ir.graph.builder import Builder
from compiler.ir.graph.values import Known, Value
from compiler.ir.onnx.model.dtypes import DTYPES
from compiler.ir.onnx.model.expansions import expand_random
from compiler.ir.onnx.model.lists import Content
from compiler.ir.onnx.node import Node
from compiler.ir.onnx.registry import op
from compiler.ir.ops.nn import norm
from compiler.ir.ops.pointwise import elementwise as ew
from compiler.ir.ops.shape import layout
from compiler.ir.shapes import extents as ex


@op("BatchNormalization", since=7)
def batch_norm(b: Builder, node: Node) -> list[Value | None]:
    """Per channel, by running statistics; in training mode by those of the batch, which it also
    folds into the running ones.
    """
    x, scale, bias, mean, variance = (node.value(index) for index in range(5))
    epsilon = node.attr("epsilon", 1e-5)
    if not node.attr("training_mode", 0):
        if any(node.wants(index) for index in range(1, 5)):
            node.fail(
                "batch normalisation that gives its statistics needs training_mode (opset 14)",
                reason="training",
            )
        return [norm.batch_norm(b, x, scale, bias, mean, variance, epsilon)]
    axes = [axis for axis in range(len(x.shape)) if axis != 1]
    centred, batch_mean = norm.moments(b, x, axes)
    batch = [
        layout.reshape(b, value, [x.shape[1]])
        for value in (batch_mean, norm.variance_of(b, centred, axes))
    ]
    momentum = node.attr("momentum", 0.9)
    running = [
        _blend(b, old, new, momentum) for old, new in zip((mean, variance), batch, strict=True)
    ]
    return [norm.batch_norm(b, x, scale, bias, batch[0], batch[1], epsilon), *running]


def _blend(b: Builder, old: Value, new: Value, momentum: float) -> Value:
    dtype = norm.wide(old.dtype)
    part = ew.multiply(b, ew.cast(b, old, dtype), norm.constant(momentum, dtype))
    return ew.cast(
        b,
        ew.add(b, part, ew.multiply(b, ew.cast(b, new, dtype), norm.constant(1 - momentum, dtype))),
        old.dtype,
    )


@op("LayerNormalization", since=17)
def layer_norm(b: Builder, node: Node) -> list[Value | None]:
    """Over the axes from `axis` on, with the mean and inverse deviation where wanted."""
    x, scale, bias = node.value(0), node.value(1), node.optional(2)
    axis = layout.axis_of(node.attr("axis", -1), len(x.shape))
    epsilon = node.attr("epsilon", 1e-5)
    if not node.wants(1) and not node.wants(2):
        return [norm.layer_norm(b, x, scale, bias, axis, epsilon)]
    stash = DTYPES[node.attr("stash_type", 1)]
    result, mean, inverse = norm.layer_norm_moments(
        b, x, scale, bias, list(range(axis, len(x.shape))), epsilon
    )
    return [result, ew.cast(b, mean, stash), ew.cast(b, inverse, stash)]


@op("RMSNormalization", since=23)
def rms_norm(b: Builder, node: Node) -> Value:
    """Over the axes from `axis` on, by the root mean square."""
    x, scale = node.value(0), node.value(1)
    stash = DTYPES[node.attr("stash_type", 1)]
    return norm.rms_norm(
        b,
        x,
        scale,
        layout.axis_of(node.attr("axis", -1), len(x.shape)),
        node.attr("epsilon", 1e-5),
        stash,
    )


@op("InstanceNormalization", since=6)
def instance_norm(b: Builder, node: Node) -> Value:
    """Each channel of each item over its spatial axes."""
    return norm.instance_norm(
        b, node.value(0), node.value(1), node.value(2), node.attr("epsilon", 1e-5)
    )


@op("GroupNormalization", since=18)
def group_norm(b: Builder, node: Node) -> Value:
    """Groups of channels; up to opset 20 with one scale and bias a group."""
    x, scale, bias = (node.value(index) for index in range(3))
    return norm.group_norm(
        b, x, scale, bias, node.attr("num_groups"), node.attr("epsilon", 1e-5), node.opset < 21
    )


@op("LRN")
def lrn(b: Builder, node: Node) -> Value:
    """Local response normalisation over channels."""
    return norm.local_response_norm(
        b,
        node.value(0),
        node.attr("size"),
        node.attr("alpha", 1e-4),
        node.attr("beta", 0.75),
        node.attr("bias", 1.0),
    )


@op("LpNormalization")
def lp_normalization(b: Builder, node: Node) -> Value:
    """Over the 1- or 2-norm along an axis."""
    x, p = node.value(0), node.attr("p", 2)
    if p not in (1, 2):
        node.fail(f"p is {p}, the operator knows 1 and 2", reason="attribute")
    return norm.lp_normalize(b, x, layout.axis_of(node.attr("axis", -1), len(x.shape)), p)


@op("MeanVarianceNormalization", since=9)
def mean_variance(b: Builder, node: Node) -> Value:
    """(x - mean) / sqrt(variance + 1e-9) over the axes, by default all but channels."""
    x = node.value(0)
    axes = [layout.axis_of(axis, len(x.shape)) for axis in node.attr("axes", [0, 2, 3])]
    centred, _ = norm.moments(b, x, axes)
    deviation = norm.sqrt(b, norm.variance_of(b, centred, axes))
    return ew.cast(
        b,
        ew.divide(b, centred, ew.add(b, deviation, norm.constant(1e-9, deviation.dtype))),
        x.dtype,
    )


@op("Softmax", since=13)
def softmax(b: Builder, node: Node) -> Value:
    """Along one axis."""
    return norm.softmax(b, node.value(0), node.attr("axis", -1))


@op("LogSoftmax", since=13)
def log_softmax(b: Builder, node: Node) -> Value:
    """Along one axis."""
    return norm.softmax(b, node.value(0), node.attr("axis", -1), log=True)


@op("Hardmax", since=13)
def hardmax(b: Builder, node: Node) -> Value:
    """Along one axis."""
    return norm.hardmax(b, node.value(0), node.attr("axis", -1))


@op("Softmax", "LogSoftmax", "Hardmax")
def softmax_flattened(b: Builder, node: Node) -> Value:
    """Before opset 13: over all axes from `axis` on together."""
    x = node.value(0)
    axis = node.attr("axis", 1)
    axis = axis + len(x.shape) if axis < 0 else axis
    matrix = layout.flatten(b, x, axis) if axis != len(x.shape) - 1 else x
    last = len(matrix.shape) - 1
    if node.proto.op_type == "Hardmax":
        return layout.reshape(b, norm.hardmax(b, matrix, last), x.shape)
    return layout.reshape(
        b, norm.softmax(b, matrix, last, log=node.proto.op_type == "LogSoftmax"), x.shape
    )


@op("Dropout", since=7)
def dropout(b: Builder, node: Node) -> Sequence[Content | None]:
    """The input, and a mask of trues, unless elements may be dropped, as in training."""
    x = node.value(0)
    if _may_drop(node):
        nodes = expand_random(node.proto, x.dtype, node.opset)
        assert nodes is not None
        return node.scope.inline(nodes, node.proto.output)
    if not node.wants(1):
        return [x]
    extents: Sequence[ex.Extent] = x.shape
    mask = b.te(
        lambda: te.compute(
            [ex.prim(e) for e in extents], lambda *_: tirx.const(True, "bool"), name="mask"
        ),
        name="mask",
    )
    return [x, mask]


def _may_drop(node: Node) -> bool:
    training, ratio = node.optional(2), node.optional(1)
    never = isinstance(training, Known) and not training.data.any()
    nothing = isinstance(ratio, Known) and not ratio.data.any()
    return training is not None and not never and not nothing

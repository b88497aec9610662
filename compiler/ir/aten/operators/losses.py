"""Losses, decomposed into arithmetic and a reduction."""

import math

from compiler.ir.aten.algebra import Array, argument, arguments, optional
from compiler.ir.aten.dtypes import DEFAULT_FLOAT
from compiler.ir.aten.node import Node
from compiler.ir.aten.operands import to_float
from compiler.ir.aten.operators.creation import integer_range
from compiler.ir.aten.operators.distances import norm_of
from compiler.ir.aten.operators.indexing import indexes
from compiler.ir.aten.registry import op, refuse
from compiler.ir.graph.builder import Builder
from compiler.ir.graph.values import Known, Value
from compiler.ir.ops.math import scan
from compiler.ir.ops.nn import losses as nn_losses
from compiler.ir.ops.pointwise import activation as fn
from compiler.ir.ops.pointwise import elementwise as ew
from compiler.ir.ops.shape import indexing as ix
from compiler.ir.ops.shape import layout
from compiler.ir.shapes import extents as ex

_REDUCTIONS = ("none", "mean", "sum")


def _reduction(node: Node) -> str:
    return _REDUCTIONS[node.int("reduction", 1)]


def _reduced(node: Node, losses: Array) -> Value:
    """The losses as they are, their mean or their sum, as the node asks."""
    kind = _reduction(node)
    return losses.value if kind == "none" else losses.reduce(kind).value


@op("mse_loss")
def mse_loss(b: Builder, node: Node) -> Value:
    """The square of the difference."""
    x, target = arguments(b, node, "self", "target")
    return _reduced(node, (x - target) * (x - target))


@op("l1_loss")
def l1_loss(b: Builder, node: Node) -> Value:
    """The size of the difference."""
    x, target = arguments(b, node, "self", "target")
    return _reduced(node, abs(x - target))


@op("smooth_l1_loss", "huber_loss")
def smooth_l1_loss(b: Builder, node: Node) -> Value:
    """Half the square of the difference where it is small, its size less a half elsewhere; over
    beta, or times delta.
    """
    x, target = arguments(b, node, "self", "target")
    apart = abs(x - target)
    if node.kind == "aten::huber_loss":
        width = node.float("delta")
        far, near = (apart - width / 2) * width, apart * apart * 0.5
        return _reduced(node, near.where(apart <= width, far))
    width = node.float("beta")
    if width == 0:
        return _reduced(node, apart)
    return _reduced(node, (apart * apart * (0.5 / width)).where(apart < width, apart - width / 2))


@op("soft_margin_loss")
def soft_margin_loss(b: Builder, node: Node) -> Value:
    """log(1 + exp(-target * self))."""
    x, target = arguments(b, node, "self", "target")
    return _reduced(node, (-(x * target)).map("softplus", fn.softplus))


@op("margin_ranking_loss")
def margin_ranking_loss(b: Builder, node: Node) -> Value:
    """max(0, margin - target * (input1 - input2))."""
    lhs, rhs, target = arguments(b, node, "input1", "input2", "target")
    apart, margin = target * (lhs - rhs), node.get("margin")
    if isinstance(margin, float) and not ew.is_float(apart.dtype):
        apart = apart.cast(DEFAULT_FLOAT)
    return _reduced(node, (margin - apart).at_least(0))


@op("hinge_embedding_loss")
def hinge_embedding_loss(b: Builder, node: Node) -> Value:
    """self where the target is 1, max(0, margin - self) where it is -1."""
    x, target = arguments(b, node, "self", "target")
    apart = (node.get("margin") - x).at_least(0)
    far = apart.where(target.compare("not_equal", 1), 0)
    return _reduced(node, far + x.where(target.compare("not_equal", -1), 0))


@op("cosine_embedding_loss")
def cosine_embedding_loss(b: Builder, node: Node) -> Value:
    """1 - cosine where the target is 1, max(0, cosine - margin) where it is -1."""
    lhs, rhs = arguments(b, node, "input1", "input2")
    dtype = lhs.dtype if ew.is_float(lhs.dtype) else DEFAULT_FLOAT
    lhs, rhs, target = lhs.cast(dtype), rhs.cast(dtype), argument(b, node, "target")
    axis = [max(lhs.rank, rhs.rank) - 1]
    squares = [(value * value).reduce("sum", [value.rank - 1]) + 1e-12 for value in (lhs, rhs)]
    cosine = (lhs * rhs).reduce("sum", axis) / (squares[0] * squares[1]).sqrt()
    apart = (cosine - node.float("margin")).at_least(0)
    like, unlike = target.compare("equal", 1), target.compare("equal", -1)
    return _reduced(node, (1 - cosine).where(like, 0) + apart.where(unlike, 0))


@op("triplet_margin_loss")
def triplet_margin_loss(b: Builder, node: Node) -> Value:
    """max(0, margin + the distance to the positive less that to the negative)."""
    anchor, positive, negative = (
        Array(b, to_float(b, item.value))
        for item in arguments(b, node, "anchor", "positive", "negative")
    )
    p, eps = node.float("p"), node.float("eps")

    def distance(lhs: Array, rhs: Array) -> Array:
        apart = lhs - rhs + eps
        return apart.wrap(norm_of(b, apart.value, p, [apart.rank - 1], False))

    far = distance(anchor, negative)
    if node.bool("swap"):
        far = far.at_most(distance(positive, negative))
    return _reduced(node, (distance(anchor, positive) - far + node.float("margin")).at_least(0))


@op("kl_div")
def kl_div(b: Builder, node: Node) -> Value:
    """target * (log(target) - self), 0 where the target is; or exp(target) * (target - self)."""
    x, target = arguments(b, node, "self", "target")
    if node.bool("log_target"):
        return _reduced(node, target.exp() * (target - x))
    logarithm = (target * target.log()).where(target.compare("not_equal", 0), 0)
    return _reduced(node, logarithm - target * x)


@op("binary_cross_entropy")
def binary_cross_entropy(b: Builder, node: Node) -> Value:
    """-(target * log(self) + (1 - target) * log(1 - self)), logarithms not below -100."""
    x, target = arguments(b, node, "self", "target")
    hit, miss = x.log().at_least(-100), (1 - x).log().at_least(-100)
    losses = (target - 1) * miss - target * hit
    weight = optional(b, node, "weight")
    return _reduced(node, losses if weight is None else losses * weight)


@op("binary_cross_entropy_with_logits")
def binary_cross_entropy_with_logits(b: Builder, node: Node) -> Value:
    """binary_cross_entropy of sigmoid(self), without leaving logarithms."""
    x, target = arguments(b, node, "self", "target")
    below = x.map("softplus", lambda v: fn.softplus(-v))
    positive = optional(b, node, "pos_weight")
    if positive is not None:
        below = below * ((positive - 1) * target + 1)
    losses = (1 - target) * x + below
    weight = optional(b, node, "weight")
    return _reduced(node, losses if weight is None else losses * weight)


@op("poisson_nll_loss")
def poisson_nll_loss(b: Builder, node: Node) -> Value:
    """exp(input) - target * input, or input - target * log(input + eps); `full` adds Stirling's
    term for targets above 1.
    """
    x, target = arguments(b, node, "input", "target")
    if not ew.is_float(x.dtype):
        x, target = x.cast(DEFAULT_FLOAT), target.cast(DEFAULT_FLOAT)
    if node.bool("log_input"):
        losses = x.exp() - target * x
    else:
        losses = x - target * (x + node.float("eps")).log()
    if node.bool("full"):
        stirling = target * target.log() - target + (target * (2 * math.pi)).log() * 0.5
        losses = losses + stirling.where(target > 1, 0)
    return _reduced(node, losses)


@op("nll_loss", "nll_loss2d", "nll_loss_nd", "nll_loss_forward", "nll_loss2d_forward")
def nll_loss(b: Builder, node: Node) -> Value | list[Value | None]:
    """The negative log-probability of the target class, weighted."""
    x, target = argument(b, node, "self"), argument(b, node, "target")
    indexes(b, node, "target", x.shape[0 if x.rank == 1 else 1])
    losses = _negative(b, node, x, target)
    return [losses, None] if node.kind.endswith("_forward") else losses


def _negative(b: Builder, node: Node, x: Array, target: Array) -> Value:
    """Losses of logarithms [N, C, ..], or [C] for one sample."""
    alone = x.rank == 1
    if alone:
        x, target = x.unsqueeze(0), target.reshape([1])
    reduction = _reduction(node)
    losses = nn_losses.negative_log_likelihood(
        b, x.value, target.value, node.optional("weight"), node.int("ignore_index"), reduction
    )
    return Array(b, losses).squeeze(0).value if alone and reduction == "none" else losses


@op("cross_entropy_loss")
def cross_entropy_loss(b: Builder, node: Node) -> Value:
    """Negative log-likelihood of the softmax; targets are classes, or probabilities of each."""
    x, target = argument(b, node, "self"), argument(b, node, "target")
    axis = 0 if x.rank == 1 else 1
    alone = x.rank == 1
    smooth = node.float("label_smoothing")
    if alone:
        x = x.unsqueeze(0)
    logs = Array(b, nn_losses.log_probabilities(b, x.value))
    if ew.is_float(target.dtype):
        return _of_probabilities(b, node, logs, target.unsqueeze(0) if alone else target, alone)
    if smooth:
        return _smooth_labels(b, node, logs, target.reshape([1]) if alone else target, alone)
    indexes(b, node, "target", x.shape[1])
    return _negative(b, node, logs.squeeze(0) if axis == 0 else logs, target)


def _of_probabilities(b: Builder, node: Node, logs: Array, target: Array, alone: bool) -> Value:
    smooth = node.float("label_smoothing")
    if smooth:
        classes = _count(logs, logs.shape[1])
        target = target * (1 - smooth) + smooth / classes
    losses = -(logs * target)
    weight = optional(b, node, "weight")
    if weight is not None:
        losses = losses * _by_class(weight, losses.rank)
    losses = losses.reduce("sum", [1])
    kind = _reduction(node)
    if kind == "none":
        return losses.squeeze(0).value if alone else losses.value
    total = losses.reduce("sum")
    if kind == "sum":
        return total.value
    samples = b.facts.simplify(ex.prod(losses.shape))
    return (total / _count(total, samples)).value


def _count(like: Array, extent: ex.Extent) -> Array:
    """An extent as a number of the dtype."""
    return Array(like.b, ew.cast(like.b, Known.of(extent, "int64"), like.dtype))


def _by_class(weight: Array, rank: int) -> Array:
    return weight.reshape([1, weight.shape[0], *[1] * (rank - 2)])


def _smooth_labels(b: Builder, node: Node, logs: Array, target: Array, alone: bool) -> Value:
    """A share of the loss spread evenly over all classes."""
    smooth, ignored, kind = (
        node.float("label_smoothing"),
        node.int("ignore_index"),
        _reduction(node),
    )
    weight = node.optional("weight")
    sharp = Array(
        b,
        nn_losses.negative_log_likelihood(b, logs.value, target.value, weight, ignored, kind),
    )
    even = -logs if weight is None else -(logs * _by_class(Array(b, weight), logs.rank))
    counted = target.compare("not_equal", ignored)
    even = even.reduce("sum", [1]).where(counted, 0)
    if kind != "none":
        even = even.reduce("sum")
    if kind == "mean":
        even = even / _total_weight(b, counted, target, weight, logs)
    classes = _count(logs, logs.shape[1])
    result = sharp * (1 - smooth) + even * smooth / classes
    return result.squeeze(0).value if alone and kind == "none" else result.value


def _total_weight(
    b: Builder, counted: Array, target: Array, weight: Value | None, logs: Array
) -> Array:
    ones = counted.cast(logs.dtype)
    if weight is None:
        return ones.reduce("sum")
    readable = target.where(counted, 0)
    picked = layout.take(b, weight, ix.check(b, readable.value, weight.shape[0]), 0)
    return (ones * Array(b, picked)).reduce("sum")


@op("multi_margin_loss")
def multi_margin_loss(b: Builder, node: Node) -> Value:
    """The mean over other classes of max(0, margin - x[target] + x) to the power p."""
    x, target = argument(b, node, "self"), argument(b, node, "target")
    alone = x.rank < 2
    if alone:
        x, target = x.reshape([1, x.shape[0] if x.rank else 1]), target.reshape([1])
    indexes(b, node, "target", x.shape[1])
    classes = target.unsqueeze(1)
    own = Array(b, ix.gather_elements(b, x.value, classes.value, 1))
    power = node.int("p", 1)
    losses = (node.get("margin", 1) - own + x).at_least(0)
    losses = losses * losses if power == 2 else losses
    weight = optional(b, node, "weight")
    if weight is not None:
        rows = ix.gather_elements(b, weight.unsqueeze(0).value, target.unsqueeze(0).value, 1)
        losses = losses * Array(b, rows).transpose([1, 0])
    every = Array(b, integer_range(b, 0, x.shape[1], 1, "int64")).unsqueeze(0)
    others = losses.where(every.compare("not_equal", classes), 0)
    result = others.reduce("sum", [1]) / _count(x, x.shape[1])
    return _reduced(node, result.squeeze(0) if alone and _reduction(node) == "none" else result)


@op("multilabel_margin_loss")
def multilabel_margin_loss(b: Builder, node: Node) -> Value:
    """The mean over classes of max(0, 1 - x[own] + x[other]) for every own class, which are those
    before the first -1, and every other.
    """
    x, target = argument(b, node, "self"), argument(b, node, "target")
    alone = x.rank < 2
    if alone:
        shape = [1, x.shape[0] if x.rank else 1]
        x, target = x.reshape(shape), target.reshape(shape)
    indexes(b, node, "target", x.shape[1])
    ended = (target < 0).cast("int64").value
    before = scan.cumulate(b, ended, 1, lambda p, q: p + q, 0, False, False)
    valid = Array(b, before).compare("equal", 0)
    readable = target.where(valid, 0)
    own = Array(b, ix.gather_elements(b, x.value, readable.value, 1))
    every = Array(b, integer_range(b, 0, x.shape[1], 1, "int64"))
    hits = readable.unsqueeze(2).compare("equal", every) & valid.unsqueeze(2)
    is_other = ~hits.reduce("max", [1], True)
    apart = (1 - own.unsqueeze(2) + x.unsqueeze(1)).at_least(0)
    losses = apart.where(valid.unsqueeze(2) & is_other, 0).reduce("sum", [1, 2])
    losses = losses / _count(x, x.shape[1])
    return _reduced(node, losses.squeeze(0) if alone and _reduction(node) == "none" else losses)


refuse(
    *("ctc_loss", "_ctc_loss", "_use_cudnn_ctc_loss"),
    why="the loss of connectionist temporal classification is not supported; return the "
    "log-probabilities, and compute the loss outside of the model",
)

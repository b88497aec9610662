"""ONNX operators of training: losses, and the steps of optimisers."""

from collections.abc import Callable, Sequence
from typing import Any

from tvm import tirx

from compiler.ir.graph.builder import Builder
from compiler.ir.graph.values import Value
from compiler.ir.onnx.indices import limit_values
from compiler.ir.onnx.node import Node
from compiler.ir.onnx.registry import op
from compiler.ir.ops.nn import losses
from compiler.ir.ops.pointwise import programs as pw
from compiler.ir.ops.pointwise.programs import like
from compiler.ir.shapes import extents as ex

PREVIEW = "ai.onnx.preview.training"


@op("NegativeLogLikelihoodLoss", since=12)
def nll_loss(b: Builder, node: Node) -> Value:
    """Minus the weighted log probability of each target."""
    return _loss(b, node, node.value(0))


@op("SoftmaxCrossEntropyLoss", since=12)
def softmax_cross_entropy(b: Builder, node: Node) -> list[Value | None]:
    """The same of a softmax of scores, and its logarithm."""
    log = losses.log_probabilities(b, node.value(0))
    return [_loss(b, node, log), log]


def _loss(b: Builder, node: Node, scores: Value) -> Value:
    reduction = node.attr("reduction", "mean")
    if reduction not in ("none", "sum", "mean"):
        node.fail(f"the reduction {reduction!r} is not known", reason="attribute")
    limit_values(b, node, 1, 0, ex.sub(scores.shape[1], 1))
    return losses.negative_log_likelihood(
        b, scores, node.value(1), node.optional(2), node.attr("ignore_index", None), reduction
    )


@op("Adagrad", domain=PREVIEW)
def adagrad(b: Builder, node: Node) -> list[Value | None]:
    """X and H after a step: the rate shrinks with the sum of squared gradients."""
    decay, epsilon, penalty = (
        node.attr("decay_factor", 0.0),
        node.attr("epsilon", 1e-6),
        node.attr("norm_coefficient", 0.0),
    )

    def squares(_: Any, __: Any, x: Any, g: Any, h: Any) -> Any:
        pull = _pull(x, g, penalty)
        return h + pull * pull

    def weights(rate: Any, step: Any, x: Any, g: Any, h: Any) -> Any:
        slowed = rate.astype(x.ty.dtype) / (like(x, 1) + step.astype(x.ty.dtype) * like(x, decay))
        return x - slowed * _pull(x, g, penalty) / (
            tirx.sqrt(squares(rate, step, x, g, h)) + like(x, epsilon)
        )

    return _stepped(b, node, 3, (weights, squares))


@op("Adam", domain=PREVIEW)
def adam(b: Builder, node: Node) -> list[Value | None]:
    """X, V and H after a step by running means of the gradient and of its square."""
    alpha, beta, epsilon = (
        node.attr("alpha", 0.9),
        node.attr("beta", 0.999),
        node.attr("epsilon", 1e-6),
    )
    penalty, after = node.attr("norm_coefficient", 0.0), node.attr("norm_coefficient_post", 0.0)

    def means(_: Any, __: Any, x: Any, g: Any, v: Any, ___: Any) -> Any:
        return like(x, alpha) * v + like(x, 1 - alpha) * _pull(x, g, penalty)

    def squares(_: Any, __: Any, x: Any, g: Any, ___: Any, h: Any) -> Any:
        pull = _pull(x, g, penalty)
        return like(x, beta) * h + like(x, 1 - beta) * pull * pull

    def weights(rate: Any, step: Any, x: Any, g: Any, v: Any, h: Any) -> Any:
        every = (rate, step, x, g, v, h)
        moved = x - _corrected(rate, step, x, alpha, beta) * means(*every) / (
            tirx.sqrt(squares(*every)) + like(x, epsilon)
        )
        return like(x, 1 - after) * moved

    return _stepped(b, node, 4, (weights, means, squares))


def _corrected(rate: Any, step: Any, x: Any, alpha: float, beta: float) -> Any:
    """Adam's rate, corrected for means that started from zero; as given at step 0."""
    count, rate = step.astype("float64"), rate.astype("float64")
    safe = tirx.max(count, like(count, 1))
    shares = [like(count, 1) - tirx.power(like(count, factor), safe) for factor in (alpha, beta)]
    return tirx.Select(
        count > like(count, 0), rate * tirx.sqrt(shares[1]) / shares[0], rate
    ).astype(x.ty.dtype)


@op("Momentum", domain=PREVIEW)
def momentum(b: Builder, node: Node) -> list[Value | None]:
    """X and V after a step with momentum, plain or Nesterov's."""
    alpha, beta, penalty, mode = (
        node.attr(name) for name in ("alpha", "beta", "norm_coefficient", "mode")
    )
    if mode not in ("standard", "nesterov"):
        node.fail(f"the mode {mode!r} is not known", reason="attribute")

    def speeds(_: Any, step: Any, x: Any, g: Any, v: Any) -> Any:
        share = tirx.Select(step > like(step, 0), like(x, beta), like(x, 1))
        return like(x, alpha) * v + share * _pull(x, g, penalty)

    def weights(rate: Any, step: Any, x: Any, g: Any, v: Any) -> Any:
        speed = speeds(rate, step, x, g, v)
        ahead = _pull(x, g, penalty) + like(x, alpha) * speed if mode == "nesterov" else speed
        return x - rate.astype(x.ty.dtype) * ahead

    return _stepped(b, node, 3, (weights, speeds))


def _pull(x: Any, g: Any, penalty: float) -> Any:
    """The gradient with that of the norm's penalty."""
    return like(x, penalty) * x + g


def _stepped(
    b: Builder, node: Node, groups: int, updates: Sequence[Callable[..., Any]]
) -> list[Value | None]:
    """Every update of every tensor; inputs are rate, step, and `groups` lists of as many tensors
    each.
    """
    rate, step = node.value(0), node.value(1)
    count, rest = divmod(len(node.inputs) - 2, groups)
    if rest:
        node.fail(f"the tensors do not come in {groups} lists of one length", reason="input")
    outputs: list[Value | None] = []
    for update in updates:
        for index in range(count):
            state = _agreeing(b, [node.value(2 + group * count + index) for group in range(groups)])
            outputs.append(
                pw.pointwise(b, update, rate, step, *state, name=node.proto.op_type.lower())
            )
    return outputs


def _agreeing(b: Builder, values: list[Value]) -> list[Value]:
    """Tensors restated in the first one's shape."""
    first = b.tensor(values[0])
    for value in values[1:]:
        for one, other in zip(first.shape, value.shape, strict=True):
            b.same(one, other, "a tensor, its gradient and its state differ in shape")
    return [first, *(b.adopt(b.tensor(value).expr, first.shape) for value in values[1:])]

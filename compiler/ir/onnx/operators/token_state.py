"""ONNX operators that carry state from token to token, and the gate that goes with them:
LinearAttention, CausalConvWithState, SwiGLU.
"""

from __future__ import annotations

from compiler.ir import extents as ex
from compiler.ir.builder import Builder
from compiler.ir.extents import Extent
from compiler.ir.onnx.node import Node
from compiler.ir.onnx.registry import op
from compiler.ir.ops import activation as fn
from compiler.ir.ops import elementwise as ew
from compiler.ir.ops import layout, pointwise, token_state
from compiler.ir.ops.attention import join_heads, restate, split_heads
from compiler.ir.ops.nn_norm import wide
from compiler.ir.values import Value

_RULES = {
    "linear": (False, False),
    "gated": (True, False),
    "delta": (False, True),
    "gated_delta": (True, True),
}
"""Whether a rule takes a decay and a beta."""


@op("LinearAttention", since=27)
def linear_attention(b: Builder, node: Node) -> list[Value | None]:
    """Query, key, value, past state, decay, beta: the outputs of every token, and the
    last state.
    """
    rule, heads, groups = (
        node.attr("update_rule", "gated_delta"),
        node.attr("q_num_heads"),
        node.attr("kv_num_heads"),
    )
    if rule not in _RULES or (node.has(4), node.has(5)) != _RULES[rule]:
        node.fail(
            f"the rule {rule!r} does not go with the decay and beta given", reason="attribute"
        )
    if groups < 1 or heads % groups:
        node.fail(f"{heads} query heads do not share {groups} heads of keys", reason="attribute")
    x = node.value(0)
    dtype = wide(x.dtype)
    query = split_heads(b, ew.cast(b, x, dtype), heads)
    batch, _, length, depth = query.shape
    key = restate(
        b,
        split_heads(b, ew.cast(b, node.value(1), dtype), groups),
        [batch, groups, length, depth],
        "linear attention's keys",
    )
    value = split_heads(b, ew.cast(b, node.value(2), dtype), groups)
    value = restate(b, value, [batch, groups, length, value.shape[3]], "linear attention's values")
    past = (
        restate(
            b,
            ew.cast(b, node.value(3), dtype),
            [batch, groups, depth, value.shape[3]],
            "the past state",
        )
        if node.has(3)
        else None
    )
    decay = _decay(b, node, groups, [batch, length], depth, dtype)
    beta = _beta(b, node, groups, [batch, length], dtype)
    result, state = token_state.linear_attention(
        b, query, key, value, past, decay, beta, node.attr("scale", 0.0)
    )
    kept = x.dtype if past is None else node.value(3).dtype
    return [ew.cast(b, join_heads(b, result), x.dtype), ew.cast(b, state, kept)]


def _decay(
    b: Builder, node: Node, groups: int, rows: list[Extent], size: Extent, dtype: str
) -> Value | None:
    """[batch, length, groups * (1 or size)] as [batch, groups, length, 1 or size], None where it is
    not given.
    """
    if not node.has(4):
        return None
    x = node.value(4)
    columns = x.shape[2]
    b.require(
        ex.either(ex.equal(columns, ex.mul(groups, size)), ex.equal(columns, groups)),
        f"a decay of {columns} columns for {groups} heads",
    )
    split = split_heads(b, ew.cast(b, x, dtype), groups)
    return restate(b, split, [rows[0], groups, rows[1], split.shape[3]], "linear attention's decay")


def _beta(b: Builder, node: Node, groups: int, rows: list[Extent], dtype: str) -> Value | None:
    """[batch, length, groups or 1] as [batch, groups or 1, length, 1], None where it is
    not given.
    """
    if not node.has(5):
        return None
    x = node.value(5)
    columns = x.shape[2]
    b.require(
        ex.either(ex.equal(columns, 1), ex.equal(columns, groups)),
        f"a beta of {columns} columns for {groups} heads",
    )
    turned = layout.transpose(b, ew.cast(b, x, dtype), [0, 2, 1])
    return layout.unsqueeze(
        b, restate(b, turned, [rows[0], columns, rows[1]], "linear attention's beta"), [3]
    )


@op("CausalConvWithState", since=27)
def causal_conv_with_state(b: Builder, node: Node) -> list[Value | None]:
    """Input, weight, bias, past state: the convolution, activated, and the state for the
    next call.
    """
    x, weight = node.value(0), node.value(1)
    activation = node.attr("activation", "none")
    if activation not in ("none", "silu", "swish"):
        node.fail(
            f"the activation {activation!r} is not supported",
            reason="unsupported_activation",
            hint="use none, silu or swish",
        )
    weight = restate(b, weight, [x.shape[1], 1, weight.shape[2]], "a causal convolution's weight")
    before = b.facts.simplify(ex.sub(weight.shape[2], 1))
    past = (
        restate(b, node.value(3), [*x.shape[:2], before], "a causal convolution's past")
        if node.has(3)
        else None
    )
    result, state = token_state.causal_conv(b, x, weight, node.optional(2), past)
    if activation != "none":
        result = pointwise.in_float(b, lambda item: fn.swish(item, 1.0), result, name="swish")
    return [ew.cast(b, result, x.dtype), state]


@op("SwiGLU", since=28)
def swiglu(b: Builder, node: Node) -> Value:
    """A * sigmoid(alpha * A) * B, of one shape."""
    alpha = node.attr("alpha", 1.0)
    other = restate(b, node.value(1), node.value(0).shape, "SwiGLU's inputs")
    return pointwise.in_float(
        b, lambda x, y: fn.swish(x, alpha) * y, node.value(0), other, name="swiglu"
    )

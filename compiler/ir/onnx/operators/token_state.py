"""Operators of ONNX and of ONNX Runtime's own domain that carry state from token to token, and the
gate that goes with them: LinearAttention, CausalConvWithState, SwiGLU.
"""

from compiler.ir.graph.builder import Builder
from compiler.ir.graph.values import Value
from compiler.ir.onnx.node import Node
from compiler.ir.onnx.operators.contrib import MICROSOFT
from compiler.ir.onnx.registry import op
from compiler.ir.ops.attention import token_state
from compiler.ir.ops.attention.attention import join_heads, restate, split_heads
from compiler.ir.ops.nn.norm import wide
from compiler.ir.ops.pointwise import activation as fn
from compiler.ir.ops.pointwise import broadcast, programs
from compiler.ir.ops.pointwise import elementwise as ew
from compiler.ir.ops.shape import layout
from compiler.ir.shapes import extents as ex
from compiler.ir.shapes.extents import Extent

_RULES = {
    "linear": (False, False),
    "gated": (True, False),
    "delta": (False, True),
    "gated_delta": (True, True),
}
"""Whether a rule takes a decay and a beta."""


@op("LinearAttention", since=27)
@op("LinearAttention", domain=MICROSOFT)
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
    _one_state(node)
    x = node.value(0)
    dtype = wide(x.dtype)
    query = _queries(b, node, split_heads(b, ew.cast(b, x, dtype), heads), groups)
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
    state_dtype = x.dtype if past is None else node.value(3).dtype
    return [ew.cast(b, join_heads(b, result), x.dtype), ew.cast(b, state, state_dtype)]


def _one_state(node: Node) -> None:
    if node.attr("state_window", 0):
        node.fail(
            "states of several tokens, for going back, are not supported",
            reason="unsupported_form",
            hint="export with state_window=0",
        )


def _queries(b: Builder, node: Node, query: Value, groups: int) -> Value:
    """Query heads [batch, heads, length, depth] for that many heads of keys: as they are where they
    share these, repeated where they are fewer.
    """
    batch, heads, length, depth = query.shape
    if groups >= 1 and heads % groups == 0:
        return query
    if groups < 1 or groups % heads:
        node.fail(f"{heads} query heads do not share {groups} heads of keys", reason="attribute")
    each = groups // heads
    spread = broadcast.expand(
        b, layout.unsqueeze(b, query, [2]), [batch, heads, each, length, depth]
    )
    return layout.reshape(b, spread, [batch, groups, length, depth])


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
@op("CausalConvWithState", domain=MICROSOFT)
def causal_conv_with_state(b: Builder, node: Node) -> list[Value | None]:
    """Input, weight, bias, past state: the convolution, activated, and the state for the
    next call.
    """
    activation, dilation = node.attr("activation", "none"), node.attr("dilation", 1)
    if activation not in ("none", "silu", "swish"):
        node.fail(
            f"the activation {activation!r} is not supported",
            reason="unsupported_activation",
            hint="use none, silu or swish",
        )
    if node.attr("ndim", 1) != 1 or dilation < 1:
        node.fail(
            "a causal convolution has one axis of tokens, and taps at least one apart",
            reason="unsupported_form",
            hint="export with ndim=1 and dilation=1 or more",
        )
    _one_state(node)
    weight = node.value(1)
    x = _channels_first(b, node, 0, weight.shape[0])
    weight = restate(b, weight, [x.shape[1], 1, weight.shape[2]], "a causal convolution's weight")
    before = b.facts.simplify(ex.mul(ex.sub(weight.shape[2], 1), dilation))
    past = (
        restate(
            b,
            _channels_first(b, node, 3, weight.shape[0]),
            [*x.shape[:2], before],
            "a causal convolution's past",
        )
        if node.has(3)
        else None
    )
    result, state = token_state.causal_conv(b, x, weight, node.optional(2), past, dilation)
    if activation != "none":
        result = programs.in_float(b, lambda item: fn.swish(item, 1.0), result, name="swish")
    outputs = [ew.cast(b, result, x.dtype), state]
    return [_as_given(b, node, value) for value in outputs]


def _channels_first(b: Builder, node: Node, index: int, channels: Extent) -> Value:
    """An input as [batch, channels, tokens]; with `channels_last` it is [batch, tokens, *parts],
    where the parts together are the channels.
    """
    x = node.value(index)
    if not node.attr("channels_last", 0):
        return x
    batch, length = x.shape[:2]
    return layout.transpose(b, layout.reshape(b, x, [batch, length, channels]), [0, 2, 1])


def _as_given(b: Builder, node: Node, value: Value) -> Value:
    """The inverse of `_channels_first`."""
    if not node.attr("channels_last", 0):
        return value
    turned = layout.transpose(b, value, [0, 2, 1])
    return layout.reshape(b, turned, [*turned.shape[:2], *node.value(0).shape[2:]])


@op("SwiGLU", since=28)
def swiglu(b: Builder, node: Node) -> Value:
    """A * sigmoid(alpha * A) * B, of one shape."""
    alpha = node.attr("alpha", 1.0)
    other = restate(b, node.value(1), node.value(0).shape, "SwiGLU's inputs")
    return programs.in_float(
        b, lambda x, y: fn.swish(x, alpha) * y, node.value(0), other, name="swiglu"
    )

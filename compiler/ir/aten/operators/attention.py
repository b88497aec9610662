"""Scaled dot-product attention."""

import math

import numpy as np
from tvm import te, tirx

from compiler.ir.aten.node import Node
from compiler.ir.aten.operands import scalar
from compiler.ir.aten.registry import op
from compiler.ir.graph.builder import Builder
from compiler.ir.graph.values import Known, Value
from compiler.ir.ops.math import linear
from compiler.ir.ops.nn import norm
from compiler.ir.ops.pointwise import broadcast
from compiler.ir.ops.pointwise import elementwise as ew
from compiler.ir.ops.shape import layout
from compiler.ir.shapes import extents as ex
from compiler.ir.shapes.extents import Extent


@op("scaled_dot_product_attention")
def attention(b: Builder, node: Node) -> Value:
    """softmax(query @ key^T * scale + mask) @ value; a bool mask keeps where it holds; a row that
    keeps nothing gives zeros.
    """
    query, key, value = (node.value(name) for name in ("query", "key", "value"))
    if node.float("dropout_p", 0.0) != 0:
        node.fail(
            "attention with dropout is for training",
            reason="unsupported_form",
            hint="save the model in evaluation mode",
        )
    if node.bool("enable_gqa", False):
        key, value = (_shared(b, query, x) for x in (key, value))
    rank = len(query.shape)
    swapped = [*range(rank - 2), rank - 1, rank - 2]
    scores = linear.matmul(b, _scaled(b, node, query), layout.transpose(b, key, swapped))
    mask = node.optional("attn_mask")
    if node.bool("is_causal", False):
        mask = _causal(b, query.shape[-2], key.shape[-2])
    if mask is None:
        return linear.matmul(b, norm.softmax(b, scores, rank - 1), value)
    if mask.dtype != "bool":
        scores = ew.add(b, scores, ew.cast(b, mask, scores.dtype))
        mask = ew.compare(b, scores, scalar(b, -np.inf, scores.dtype), "not_equal")
        weights = norm.softmax(b, scores, rank - 1)
    else:
        weights = norm.softmax(
            b, ew.where(b, mask, scores, scalar(b, -np.inf, scores.dtype)), rank - 1
        )
    return linear.matmul(b, ew.where(b, mask, weights, scalar(b, 0, weights.dtype)), value)


def _scaled(b: Builder, node: Node, query: Value) -> Value:
    if node.has("scale"):
        return ew.multiply(b, query, scalar(b, node.get("scale"), query.dtype))
    width = b.facts.simplify(query.shape[-1])
    if isinstance(width, int):
        return ew.multiply(b, query, scalar(b, 1 / math.sqrt(width), query.dtype))
    root = norm.sqrt(b, b.tensor(ew.cast(b, Known.of(width), query.dtype)))
    return ew.divide(b, query, root)


def _shared(b: Builder, query: Value, x: Value) -> Value:
    """Heads of keys and values repeated so that each query head has one."""
    groups = b.facts.simplify(ex.floordiv(query.shape[-3], x.shape[-3]))
    if b.facts.same(groups, 1) is True:
        return x
    axis = len(x.shape) - 3
    spread = broadcast.expand(
        b, layout.unsqueeze(b, x, [axis + 1]), [*x.shape[: axis + 1], groups, *x.shape[axis + 1 :]]
    )
    return layout.reshape(b, spread, [*x.shape[:axis], query.shape[-3], *x.shape[axis + 1 :]])


def _causal(b: Builder, rows: Extent, columns: Extent) -> Value:
    """bool[rows, columns], true up to the diagonal from the upper left corner."""

    def compute() -> te.Tensor:
        return te.compute(
            [ex.prim(rows), ex.prim(columns)], lambda i, j: tirx.GE(i, j), name="causal"
        )

    return b.te(compute, name="causal")

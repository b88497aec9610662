"""Norms and distances."""

from collections.abc import Sequence

import numpy as np
from tvm import relax

from compiler.ir.aten.node import Node
from compiler.ir.aten.operands import pair, scalar, to_float
from compiler.ir.aten.operators.reduction import reduced_axes
from compiler.ir.aten.registry import op
from compiler.ir.graph.builder import Builder
from compiler.ir.graph.values import Value
from compiler.ir.ops.math import reduce as rd
from compiler.ir.ops.nn import norm as nn_norm
from compiler.ir.ops.pointwise import elementwise as ew
from compiler.ir.ops.shape import layout


@op("norm", "linalg_vector_norm", "frobenius_norm")
def norm(b: Builder, node: Node) -> Value:
    """The p-norm, 2 where p is None."""
    x = _typed(b, node)
    name = "ord" if "ord" in node.names else "p"
    p = 2.0 if node.get(name, None) in (None, "fro") else node.float(name)
    return norm_of(b, x, p, reduced_axes(node, x), node.bool("keepdim", False))


@op("linalg_norm", "linalg_matrix_norm")
def linalg_norm(b: Builder, node: Node) -> Value:
    """The norm of vectors, or the Frobenius norm of matrices."""
    x, order = _typed(b, node), node.get("ord", None)
    axes = reduced_axes(node, x)
    matrices = node.kind == "aten::linalg_matrix_norm" or (order is not None and len(axes) == 2)
    if matrices and order not in (None, "fro"):
        node.fail("of matrices only the Frobenius norm is supported", reason="unsupported_form")
    return norm_of(
        b,
        x,
        2.0 if order in (None, "fro") else node.float("ord"),
        axes,
        node.bool("keepdim", False),
    )


def _typed(b: Builder, node: Node) -> Value:
    x = node.value("self")
    return to_float(b, ew.cast(b, x, node.dtype("dtype", x.dtype)))


def norm_of(b: Builder, x: Value, p: float, axes: Sequence[int], keepdim: bool) -> Value:
    """The p-norm over some axes."""
    size = ew.unary(b, x, relax.op.abs, numpy=np.abs)
    if p == 1:
        return rd.reduce(b, size, "sum", axes, keepdim)
    if p == 2:
        return nn_norm.sqrt(b, rd.reduce(b, ew.multiply(b, x, x), "sum", axes, keepdim))
    if abs(p) == np.inf:
        return rd.reduce(b, size, "max" if p > 0 else "min", axes, keepdim, keep_nan=True)
    if p == 0:
        return rd.reduce(b, ew.cast(b, ew.cast(b, x, "bool"), x.dtype), "sum", axes, keepdim)
    powers = ew.binary(b, size, scalar(b, p, x.dtype), relax.op.power, numpy=np.power)
    return ew.binary(
        b,
        rd.reduce(b, powers, "sum", axes, keepdim),
        scalar(b, 1 / p, x.dtype),
        relax.op.power,
        numpy=np.power,
    )


@op("dist")
def dist(b: Builder, node: Node) -> Value:
    """The p-norm of the difference."""
    x = ew.subtract(b, *pair(b, node, floating=True))
    return norm_of(b, x, node.float("p", 2.0), list(range(len(x.shape))), False)


@op("pairwise_distance")
def pairwise_distance(b: Builder, node: Node) -> Value:
    """The p-norm of x1 - x2 + eps along the last axis."""
    apart = ew.subtract(b, *pair(b, node, "x1", "x2", floating=True))
    moved = ew.add(b, apart, scalar(b, node.float("eps"), apart.dtype))
    return norm_of(b, moved, node.float("p"), [len(moved.shape) - 1], node.bool("keepdim"))


@op("cdist", "_cdist_forward")
def cdist(b: Builder, node: Node) -> Value:
    """Distances of every row of one to every row of the other by the p-norm."""
    one, other = node.value("x1"), node.value("x2")
    rank = len(one.shape)
    apart = ew.subtract(
        b, layout.unsqueeze(b, one, [rank - 1]), layout.unsqueeze(b, other, [rank - 2])
    )
    return norm_of(b, apart, node.float("p"), [rank], False)


@op("cosine_similarity")
def cosine_similarity(b: Builder, node: Node) -> Value:
    """The cosine of the angle between x1 and x2 along an axis, norms not below eps."""
    one, other = node.value("x1"), node.value("x2")
    rank = max(len(one.shape), len(other.shape))
    axis, eps = node.axis("dim", rank), node.float("eps")
    parts = [
        ew.divide(b, value, _not_below(b, norm_of(b, value, 2.0, [axis - rank], True), eps))
        for value in (one, other)
    ]
    return rd.reduce(b, ew.multiply(b, *parts), "sum", [axis], False)


def _not_below(b: Builder, x: Value, least: float) -> Value:
    return ew.binary(b, x, scalar(b, least, x.dtype), relax.op.maximum, numpy=np.maximum)

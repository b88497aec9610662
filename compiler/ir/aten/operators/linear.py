"""Matmuls and linear layers."""

from compiler.ir.aten.node import Node
from compiler.ir.aten.operands import scalar
from compiler.ir.aten.registry import op
from compiler.ir.graph.builder import Builder
from compiler.ir.graph.values import Value
from compiler.ir.ops.math import einsum as es
from compiler.ir.ops.math import linear
from compiler.ir.ops.math import reduce as rd
from compiler.ir.ops.pointwise import elementwise as ew
from compiler.ir.ops.quantized import dequantized
from compiler.ir.ops.shape import layout

_RANKS = {
    "mm": (2, 2),
    "bmm": (3, 3),
    "mv": (2, 1),
    "dot": (1, 1),
    "addmm": (2, 2),
    "addmv": (2, 1),
    "baddbmm": (3, 3),
}


def _factors(node: Node, first: int) -> list[Value]:
    """The two arguments from `first` on, of the ranks that the operator takes."""
    factors = [node.memory.read(item) for item in node.args[first : first + 2]]
    name = node.kind.removeprefix("aten::").removesuffix("_")
    ranks = tuple(len(factor.shape) for factor in factors)
    if ranks != _RANKS.get(name, ranks):
        node.fail(
            f"{name} takes factors of ranks {_RANKS[name]}, these have {ranks}", reason="shape"
        )
    return factors


@op("matmul", "mm", "bmm", "mv", "dot", "linalg_matmul")
def matmul(b: Builder, node: Node) -> Value:
    """numpy's matmul."""
    return _matmul(b, *_factors(node, 0))


def _matmul(b: Builder, x: Value, y: Value) -> Value:
    """numpy's matmul; by the integers of a matrix that was dequantized."""
    return dequantized.matmul(b, x, y) or linear.matmul(b, x, y)


@op("linear")
def fully_connected(b: Builder, node: Node) -> Value:
    """input @ weight^T + bias."""
    weight = node.value("weight")
    result = _matmul(
        b,
        node.value("input"),
        weight if len(weight.shape) == 1 else layout.transpose(b, weight, [1, 0]),
    )
    bias = node.optional("bias")
    return result if bias is None else ew.add(b, result, bias)


@op("addmm", "addmv", "baddbmm")
def addmm(b: Builder, node: Node) -> Value:
    """beta * self + alpha * (first @ second)."""
    return _sum(b, node, _matmul(b, *_factors(node, 1)))


@op("addbmm")
def addbmm(b: Builder, node: Node) -> Value:
    """beta * self + alpha * the sum of batch1 @ batch2 over the batch."""
    matrices = linear.matmul(b, node.value("batch1"), node.value("batch2"))
    return _sum(b, node, rd.reduce(b, matrices, "sum", [0], False))


def _sum(b: Builder, node: Node, matrix: Value) -> Value:
    alpha, beta = node.get("alpha", 1), node.get("beta", 1)
    if alpha != 1:
        matrix = ew.multiply(b, matrix, scalar(b, alpha, matrix.dtype))
    if beta == 0:
        return matrix
    x = node.value("self")
    return ew.add(b, x if beta == 1 else ew.multiply(b, x, scalar(b, beta, x.dtype)), matrix)


@op("outer", "ger")
def outer(b: Builder, node: Node) -> Value:
    """Products of every element of one vector with every element of another."""
    one, other = (node.memory.read(item) for item in node.args[:2])
    return ew.multiply(b, layout.unsqueeze(b, one, [1]), layout.unsqueeze(b, other, [0]))


@op("einsum")
def einsum(b: Builder, node: Node) -> Value:
    """The sum of products that the equation names."""
    return es.einsum(b, node.text("equation"), node.values("tensors"))


@op("bilinear")
def bilinear(b: Builder, node: Node) -> Value:
    """input1 @ weight[o] @ input2 for every output o."""
    result = es.einsum(
        b, "...i,oij,...j->...o", [node.value("input1"), node.value("weight"), node.value("input2")]
    )
    bias = node.optional("bias")
    return result if bias is None else ew.add(b, result, bias)

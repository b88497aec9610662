"""Matrix products."""

from __future__ import annotations

from compiler.ir.builder import Builder
from compiler.ir.ops import einsum as es
from compiler.ir.ops import elementwise as ew
from compiler.ir.ops import layout, linear
from compiler.ir.ops import reduce as rd
from compiler.ir.torchscript.node import Node
from compiler.ir.torchscript.operands import scalar
from compiler.ir.torchscript.registry import op
from compiler.ir.values import Value


@op("matmul", "mm", "bmm", "mv", "dot", "linalg_matmul")
def matmul(b: Builder, node: Node) -> Value:
    """numpy's matmul."""
    one, other = (node.memory.read(item) for item in node.args[:2])
    return linear.matmul(b, one, other)


@op("linear")
def fully_connected(b: Builder, node: Node) -> Value:
    """input @ weight^T + bias."""
    weight = node.value("weight")
    product = linear.matmul(b, node.value("input"), weight if len(weight.shape) == 1 else layout.transpose(b, weight, [1, 0]))
    bias = node.optional("bias")
    return product if bias is None else ew.add(b, product, bias)


@op("addmm", "addmv", "baddbmm")
def addmm(b: Builder, node: Node) -> Value:
    """beta * self + alpha * (first @ second)."""
    product = linear.matmul(b, *(node.memory.read(item) for item in node.args[1:3]))
    return _sum(b, node, product)


@op("addbmm")
def addbmm(b: Builder, node: Node) -> Value:
    """beta * self + alpha * the sum of batch1 @ batch2 over the batch."""
    product = linear.matmul(b, node.value("batch1"), node.value("batch2"))
    return _sum(b, node, rd.reduce(b, product, "sum", [0], False))


def _sum(b: Builder, node: Node, product: Value) -> Value:
    alpha, beta = node.get("alpha", 1), node.get("beta", 1)
    if alpha != 1:
        product = ew.multiply(b, product, scalar(b, alpha, product.dtype))
    if beta == 0:
        return product
    x = node.value("self")
    return ew.add(b, x if beta == 1 else ew.multiply(b, x, scalar(b, beta, x.dtype)), product)


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
    product = es.einsum(b, "...i,oij,...j->...o", [node.value("input1"), node.value("weight"), node.value("input2")])
    bias = node.optional("bias")
    return product if bias is None else ew.add(b, product, bias)

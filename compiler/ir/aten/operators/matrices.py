"""Diagonals, triangles, determinants and matmuls."""

from functools import reduce
from typing import Any

import numpy as np
from tvm import te, tirx

from compiler.ir.aten.node import Node
from compiler.ir.aten.operands import pair
from compiler.ir.aten.operators.views import diagonal_of
from compiler.ir.aten.registry import op, plain
from compiler.ir.graph.builder import Builder
from compiler.ir.graph.indices import Indices
from compiler.ir.graph.values import Known, Value
from compiler.ir.ops.math import determinant, linear
from compiler.ir.ops.math import reduce as rd
from compiler.ir.ops.pointwise import broadcast
from compiler.ir.ops.pointwise import elementwise as ew
from compiler.ir.ops.shape import layout
from compiler.ir.shapes import extents as ex


@op("diag")
def diag(b: Builder, node: Node) -> Value:
    """A vector as a diagonal of a matrix of zeros, or the diagonal of a matrix as a vector."""
    x, offset = node.value("self"), node.int("diagonal", 0)
    return (
        embed_diagonal(b, x, offset) if len(x.shape) == 1 else diagonal_of(b, x, offset, 0, 1)(b, x)
    )


@op("diag_embed")
def diag_embed(b: Builder, node: Node) -> Value:
    """The last axis as a diagonal of two new ones."""
    x = node.value("self")
    rank, offset = len(x.shape) + 1, node.int("offset", 0)
    row, column = node.axis("dim1", rank, -2), node.axis("dim2", rank, -1)
    matrix = embed_diagonal(b, x, offset if row < column else -offset)
    rest = iter(range(rank - 2))
    ends = dict(zip(sorted((row, column)), (rank - 2, rank - 1), strict=True))
    return layout.transpose(b, matrix, [ends[i] if i in ends else next(rest) for i in range(rank)])


def embed_diagonal(b: Builder, x: Value, offset: int) -> Value:
    """The last axis as a diagonal of two."""
    side = b.facts.simplify(ex.add(x.shape[-1], abs(offset)))
    shape = [ex.prim(extent) for extent in (*x.shape[:-1], side, side)]
    byte = "int8" if x.dtype == "bool" else x.dtype

    def compute(data: te.Tensor) -> te.Tensor:
        def element(*i: Any) -> Any:
            row, column = i[-2], i[-1]
            position = row if offset >= 0 else column
            return tirx.if_then_else(
                tirx.EQ(column - row, ex.prim(offset)), data(*i[:-2], position), tirx.const(0, byte)
            )

        return te.compute(shape, element, name="diag")

    return ew.cast(b, b.te(compute, ew.cast(b, x, byte), name="diag"), x.dtype)


@op("trace")
def trace(b: Builder, node: Node) -> Value:
    """The sum of the diagonal."""
    x = node.value("self")
    picked = diagonal_of(b, x, 0, 0, 1)(b, x)
    return rd.reduce(
        b, picked if ew.is_float(x.dtype) else ew.cast(b, picked, "int64"), "sum", [0], False
    )


@plain("tril_indices", "triu_indices")
def triangle_indices(b: Builder, node: Node) -> Value:
    """Rows and columns of a triangle's elements, for known sizes."""
    triangle = np.tril_indices if node.kind == "aten::tril_indices" else np.triu_indices
    indices = triangle(node.int("row"), node.int("offset", 0), node.int("col"))
    return Known.of(np.stack(indices), node.dtype("dtype", "int64"))


@op("det", "linalg_det")
def det(b: Builder, node: Node) -> Value:
    """The determinant of the last two axes."""
    x = node.memory.read(node.args[0])
    return determinant.determinant(b, x)


@op("cross", "linalg_cross")
def cross(b: Builder, node: Node) -> Value:
    """The cross product along an axis of three."""
    x, y = pair(b, node)
    shape = broadcast.joined_shape(b, x.shape, y.shape)
    x, y = (broadcast.expand(b, value, shape) for value in (x, y))
    if node.kind == "aten::cross" and not node.has("dim"):
        axis = next(
            (index for index, extent in enumerate(shape) if b.facts.same(extent, 3) is True), 0
        )
    else:
        axis = node.axis("dim", len(shape), -1)
    b.same(shape[axis], 3, "a cross product needs an axis of three")

    def turned(value: Value, order: list[int]) -> Value:
        return layout.take(b, value, Indices.constant(order, 3), axis)

    forth, back = [1, 2, 0], [2, 0, 1]
    return ew.subtract(
        b, *(ew.multiply(b, turned(x, p), turned(y, q)) for p, q in ((forth, back), (back, forth)))
    )


@op("tensordot")
def tensordot(b: Builder, node: Node) -> Value:
    """Products summed over pairs of axes."""
    x, y = node.value("self"), node.value("other")
    summed = [
        [node.as_axis(axis, len(v.shape)) for axis in node.ints(name)]
        for v, name in ((x, "dims_self"), (y, "dims_other"))
    ]
    free = [
        [axis for axis in range(len(v.shape)) if axis not in mine]
        for v, mine in ((x, summed[0]), (y, summed[1]))
    ]
    for one, other in zip(*summed, strict=True):
        b.same(x.shape[one], y.shape[other], "the axes of a tensordot differ")
    inner = b.facts.simplify(ex.prod(x.shape[axis] for axis in summed[0]))
    rows, columns = ([v.shape[axis] for axis in mine] for v, mine in ((x, free[0]), (y, free[1])))
    left = layout.reshape(
        b,
        layout.transpose(b, x, [*free[0], *summed[0]]),
        [b.facts.simplify(ex.prod(rows)), inner],
    )
    right = layout.reshape(
        b,
        layout.transpose(b, y, [*summed[1], *free[1]]),
        [inner, b.facts.simplify(ex.prod(columns))],
    )
    return layout.reshape(b, linear.matmul(b, left, right), [*rows, *columns])


@op("vdot", "inner")
def inner(b: Builder, node: Node) -> Value:
    """Products summed over the last axes; of a number, a plain product."""
    x, y = node.value("self"), node.value("other")
    if not x.shape or not y.shape:
        return ew.multiply(b, x, y)
    rank = len(y.shape)
    flat = layout.reshape(b, y, [b.facts.simplify(ex.prod(y.shape[:-1])), y.shape[-1]])
    matrix = linear.matmul(b, x, layout.transpose(b, flat, [1, 0]))
    return layout.reshape(b, matrix, [*x.shape[:-1], *y.shape[: rank - 1]])


@op("linalg_multi_dot", "chain_matmul")
def multi_dot(b: Builder, node: Node) -> Value:
    """Matrices multiplied one after the other."""
    return reduce(lambda x, y: linear.matmul(b, x, y), node.values(node.names[0]))

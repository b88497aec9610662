"""ONNX operators of tensor algebra: Einstein sums, determinants, running sums and products."""

import operator
from collections.abc import Callable
from typing import Any

from compiler.ir.graph.builder import Builder
from compiler.ir.graph.values import Value
from compiler.ir.onnx.node import Node
from compiler.ir.onnx.registry import op
from compiler.ir.ops.math import determinant as det
from compiler.ir.ops.math import einsum as es
from compiler.ir.ops.math import scan
from compiler.ir.shapes.extents import Extent


@op("Einsum", since=12)
def einsum(b: Builder, node: Node) -> Value:
    """The sum of products that the equation names."""
    return es.einsum(
        b, node.attr("equation"), [node.value(index) for index in range(len(node.inputs))]
    )


@op("Det", since=11)
def determinant(b: Builder, node: Node) -> Value:
    """Determinants of the matrices in the last two axes."""
    return det.determinant(b, node.value(0))


def _cumulate(b: Builder, node: Node, combine: Callable[[Any, Any], Any], start: int) -> Value:
    rank = len(node.value(0).shape)
    axis: Extent = node.known_integers(1, "axis", -rank, rank - 1).scalars()[0]
    exclusive, reverse = bool(node.attr("exclusive", 0)), bool(node.attr("reverse", 0))
    return scan.cumulate(b, node.value(0), axis, combine, start, exclusive, reverse)


@op("CumSum", since=11)
def cum_sum(b: Builder, node: Node) -> Value:
    """Running sums along an axis."""
    return _cumulate(b, node, operator.add, 0)


@op("CumProd", since=26)
def cum_prod(b: Builder, node: Node) -> Value:
    """Running products along an axis."""
    return _cumulate(b, node, operator.mul, 1)

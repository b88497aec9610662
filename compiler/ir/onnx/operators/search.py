"""ONNX operators that search and select: what comes out depends on the data."""

import numpy as np

from compiler.ir.graph.builder import Builder
from compiler.ir.graph.values import Known, Value
from compiler.ir.onnx.indices import limit_values
from compiler.ir.onnx.node import Node
from compiler.ir.onnx.registry import op
from compiler.ir.ops.nn import suppression
from compiler.ir.ops.shape import layout, selecting, sorting
from compiler.ir.shapes import extents as ex
from compiler.ir.shapes.extents import Extent
from compiler.ir.shapes.limits import end_of


def _arg_extreme(b: Builder, node: Node, greatest: bool) -> Value:
    x = node.value(0)
    axis = layout.axis_of(node.attr("axis", 0), len(x.shape))
    index = sorting.arg_extreme(b, x, axis, greatest, bool(node.attr("select_last_index", 0)))
    return index if node.attr("keepdims", 1) else layout.squeeze(b, index, [axis])


@op("ArgMax")
def arg_max(b: Builder, node: Node) -> Value:
    """Index of the greatest element along `axis`."""
    return _arg_extreme(b, node, True)


@op("ArgMin")
def arg_min(b: Builder, node: Node) -> Value:
    """Index of the least element along `axis`."""
    return _arg_extreme(b, node, False)


@op("TopK", since=10)
def top_k(b: Builder, node: Node) -> list[Value]:
    """The k greatest or least along `axis`, always in order, with k an input."""
    k: Extent = node.known_extents(1, "k").scalars()[0]
    axis = layout.axis_of(node.attr("axis", -1), len(node.value(0).shape))
    limit_values(b, node, 1, ex.minimum(1, node.value(0).shape[axis]), node.value(0).shape[axis])
    return list(
        sorting.top_k(b, node.value(0), k, node.attr("axis", -1), bool(node.attr("largest", 1)))
    )


@op("TopK")
def top_k_attribute(b: Builder, node: Node) -> list[Value]:
    """The k greatest along `axis`, k an attribute."""
    return list(sorting.top_k(b, node.value(0), node.attr("k"), node.attr("axis", -1), True))


@op("Unique", since=11)
def unique(b: Builder, node: Node) -> list[Value]:
    """Distinct elements or subtensors, with first occurrences, inverse indices and counts."""
    x, declared = node.value(0), node.attr("axis", None)
    axis = None if declared is None else layout.axis_of(declared, len(x.shape))
    return list(sorting.unique(b, x, axis, bool(node.attr("sorted", 1))))


@op("NonZero", since=9)
def nonzero(b: Builder, node: Node) -> Value:
    """Coordinates of the elements that are not zero."""
    return selecting.nonzero(b, node.value(0))


@op("Compress", since=9)
def compress(b: Builder, node: Node) -> Value:
    """Slices or elements for which the condition holds."""
    shape, axis = node.value(0).shape, node.attr("axis", None)
    most = ex.prod(shape) if axis is None else shape[axis]
    limit_values(b, node, 1, 0, 1, length=end_of(b.facts, most))
    return selecting.compress(b, node.value(0), node.value(1), node.attr("axis", None))


@op("NonMaxSuppression", since=10)
def non_max_suppression(b: Builder, node: Node) -> Value:
    """Boxes kept by greedy suppression."""
    most = node.optional(2) or Known(np.zeros(1, np.int64), "int64")
    overlap = node.optional(3) or Known(np.zeros(1, np.float32), "float32")
    b.require(ex.equal(node.value(0).shape[2], 4), "NonMaxSuppression: a box has four numbers")
    return suppression.suppress(
        b,
        node.value(0),
        node.value(1),
        most,
        overlap,
        node.optional(4),
        bool(node.attr("center_point_box", 0)),
    )

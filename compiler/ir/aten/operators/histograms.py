"""Histograms whose edges are outputs, or are given, of one axis and of several."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from compiler.ir.aten.algebra import Array, argument, is_tensor, neighbours, optional
from compiler.ir.aten.memory import Ref
from compiler.ir.aten.node import Node
from compiler.ir.aten.operands import scalar
from compiler.ir.aten.operators.creation import fill_with
from compiler.ir.aten.registry import op
from compiler.ir.graph.builder import Builder
from compiler.ir.graph.values import Known, Value
from compiler.ir.ops.shape import scatter as sc
from compiler.ir.shapes import extents as ex
from compiler.ir.shapes.extents import Extent


@op("histogram")
def histogram(b: Builder, node: Node) -> list[Value]:
    """How many elements, or how much weight, lies between each two edges; and the edges."""
    x = argument(b, node, "self")
    samples = x.reshape([b.facts.simplify(ex.prod(x.shape)), 1])
    if is_tensor(node, "bins"):
        edges = [argument(b, node, "bins")]
    else:
        edges = _even_edges(b, node, samples, [node.int("bins")])
    return [_counted(b, node, samples, edges).value, edges[0].value]


@op("histogramdd")
def histogram_of_axes(b: Builder, node: Node) -> list[Any]:
    """A histogram of samples [.., D], and the edges along each axis."""
    samples, bins = _samples(b, node), node.get("bins")
    if isinstance(bins, int):
        counts = [bins] * int(samples.shape[1])  # type: ignore[arg-type]
        edges = _even_edges(b, node, samples, counts)
    elif all(isinstance(item, Ref) for item in node.items("bins")):
        edges = [Array(b, value) for value in node.values("bins")]
    else:
        edges = _even_edges(b, node, samples, node.ints("bins"))
    return [_counted(b, node, samples, edges).value, [edge.value for edge in edges]]


@op("_histogramdd_bin_edges")
def bin_edges(b: Builder, node: Node) -> list[Value]:
    """The edges along each axis of samples [.., D]."""
    return [edge.value for edge in _even_edges(b, node, _samples(b, node), node.ints("bins"))]


@op("_histogramdd_from_bin_cts")
def histogram_by_counts(b: Builder, node: Node) -> Value:
    """A histogram of samples [.., D] with so many bins along each axis."""
    samples = _samples(b, node)
    return _counted(b, node, samples, _even_edges(b, node, samples, node.ints("bins"))).value


@op("_histogramdd_from_bin_tensors")
def histogram_by_edges(b: Builder, node: Node) -> Value:
    """A histogram of samples [.., D] between given edges."""
    edges = [Array(b, value) for value in node.values("bins")]
    return _counted(b, node, _samples(b, node), edges).value


def _samples(b: Builder, node: Node) -> Array:
    x = argument(b, node, "self")
    return x.reshape([b.facts.simplify(ex.prod(x.shape[:-1])), x.shape[-1]])


def _even_edges(b: Builder, node: Node, samples: Array, bins: Sequence[int]) -> list[Array]:
    """Edges apart alike over the declared range, else over that of the samples [N, D]; half an
    element to both sides where its ends are equal, 0 to 1 of no samples.
    """
    declared = [float(end) for end in node.items("range")] if node.has("range") else None
    edges = []
    for axis, count in enumerate(bins):
        if declared is not None:
            low, high = (
                Array(b, scalar(b, end, samples.dtype)) for end in declared[2 * axis : 2 * axis + 2]
            )
        else:
            low, high = _extremes(b, samples.slice(1, axis, axis + 1))
        equal = low.compare("equal", high)
        low, high = (low - 0.5).where(equal, low), (high + 0.5).where(equal, high)
        step = (high - low) / count
        steps = np.arange(count + 1)
        rising = low + step * Array(b, Known.of(steps, samples.dtype))
        falling = high - step * Array(b, Known.of(count - steps, samples.dtype))
        first = Array(b, Known.of(steps < (count + 1) // 2, "bool"))
        edges.append(rising.where(first, falling))
    return edges


def _extremes(b: Builder, column: Array) -> tuple[Array, Array]:
    ends = b.facts.decide(ex.greater_equal(column.shape[0], 1))
    if ends is False:
        low, high = (Array(b, scalar(b, end, column.dtype)) for end in (0, 1))
        return low, high
    low, high = column.reduce("min"), column.reduce("max")
    if ends is None:
        none = Array(b, Known.of(b.facts.simplify(column.shape[0]), "int64")).compare("equal", 0)
        zero, one = (Array(b, scalar(b, end, column.dtype)) for end in (0, 1))
        low, high = zero.where(none, low), one.where(none, high)
    return low, high


def _counted(b: Builder, node: Node, samples: Array, edges: Sequence[Array]) -> Array:
    """Samples [N, D] counted in a grid of the bins between the edges of each axis; an element at
    the last edge is in the last bin.
    """
    bins = [b.facts.simplify(ex.sub(edge.shape[0], 1)) for edge in edges]
    columns = [samples.slice(1, axis, axis + 1) for axis in range(len(edges))]
    position, inside = _located(columns[0], edges[0], bins[0])
    for column, edge, count in zip(columns[1:], edges[1:], bins[1:], strict=True):
        index, fits = _located(column, edge, count)
        position, inside = position * _integer(b, count) + index, inside & fits
    weight = optional(b, node, "weight")
    if weight is None:
        added = inside.cast(samples.dtype)
    else:
        added = weight.reshape([samples.shape[0]]).where(inside, 0)
    total = b.facts.simplify(ex.prod(bins))
    zeros = fill_with(b, [total], scalar(b, 0, samples.dtype))
    counts = sc.scatter_nd(b, zeros, position.unsqueeze(1).value, added.value, sc.Reduction.ADD)
    result = Array(b, counts).reshape(bins)
    return _density(result, edges) if node.bool("density", False) else result


def _located(column: Array, edge: Array, bins: Extent) -> tuple[Array, Array]:
    """int64[N]: the bin of each element of a column [N, 1]; bool[N]: whether there is one."""
    b = column.b
    begun = (edge.unsqueeze(0) <= column).cast("int64").reduce("sum", [1])
    index = (begun - 1).at_most(_integer(b, ex.sub(bins, 1))).at_least(0)
    low, high = (
        edge.slice(0, end, b.facts.simplify(ex.add(end, 1))).squeeze(0) for end in (0, bins)
    )
    column = column.squeeze(1)
    return index, (column >= low) & (column <= high)


def _integer(b: Builder, extent: Extent) -> Array:
    return Array(b, Known.of(b.facts.simplify(extent), "int64"))


def _density(counts: Array, edges: Sequence[Array]) -> Array:
    """Counts over their sum and the sizes of their bins."""
    result = counts / counts.reduce("sum")
    for axis, edge in enumerate(edges):
        after, before = neighbours(edge, 0)
        shape = [extent if i == axis else 1 for i, extent in enumerate(counts.shape)]
        result = result / (after - before).reshape(shape)
    return result

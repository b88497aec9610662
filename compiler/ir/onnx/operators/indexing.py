"""ONNX operators that read and write at computed positions."""

from typing import Any

from compiler.ir.graph.builder import Builder
from compiler.ir.graph.values import Known, Value
from compiler.ir.onnx.indices import limit_values
from compiler.ir.onnx.model.dtypes import DTYPES
from compiler.ir.onnx.node import Node
from compiler.ir.onnx.registry import op
from compiler.ir.ops.pointwise import elementwise as ew
from compiler.ir.ops.shape import indexing, layout
from compiler.ir.ops.shape import scatter as sc
from compiler.ir.shapes import extents as ex
from compiler.ir.shapes.extents import Extent
from compiler.ir.shapes.index_bounds import USUAL


def indexes(b: Builder, node: Node, index: int, extent: Extent, **more: Any) -> None:
    """Note that an input holds indices into an axis of this extent; `more`: as in `Limit`."""
    limit_values(b, node, index, 0, ex.sub(extent, 1), **more)


@op("GatherElements", since=11)
def gather_elements(b: Builder, node: Node) -> Value:
    """Elements along `axis` at indices of the result's shape."""
    x = node.value(0)
    axis = layout.axis_of(node.attr("axis", 0), len(x.shape))
    indexes(b, node, 1, x.shape[axis], from_end=True)
    return indexing.gather_elements(b, x, node.value(1), axis)


@op("GatherND", since=11)
def gather_nd(b: Builder, node: Node) -> Value:
    """Slices at coordinates; their number decides the rank, so it is the last axis's extent or
    follows from the declared rank.
    """
    x, indices, batch = node.value(0), node.value(1), node.attr("batch_dims", 0)
    depth = b.facts.simplify(indices.shape[-1])
    if not isinstance(depth, int):
        rank = node.declared_rank(0)
        if rank is None:
            node.fail(
                "the indices' last axis is a dim, so the rank of the result is open",
                reason="unknown_rank",
                hint="fix that dim",
            )
        depth = len(x.shape) + len(indices.shape) - 1 - batch - rank
        if not 0 <= depth <= len(x.shape) - batch:
            node.fail(f"no number of coordinates gives the declared rank {rank}", reason="shape")
        b.same(
            indices.shape[-1],
            depth,
            f"the indices' last axis is not {depth}, which the declared rank {rank} asks for",
        )
    for axis in range(depth):
        indexes(b, node, 1, x.shape[batch + axis], coordinate=axis, from_end=True)
    return indexing.gather_nd(b, x, indices, depth, batch)


def _reduction(node: Node) -> sc.Reduction:
    name = node.attr("reduction", "none")
    try:
        return sc.Reduction(name)
    except ValueError:
        node.fail(f"the reduction {name!r} is not known", reason="attribute")


def _distinct(reduction: sc.Reduction, axis: int) -> int | None:
    """The axis along which indices must differ: which of several writes to one element stays is not
    specified.
    """
    return axis if reduction is sc.Reduction.NONE else None


@op("ScatterElements", "Scatter")
def scatter_elements(b: Builder, node: Node) -> Value:
    """Updates written or combined along `axis` at indices of their own shape."""
    x = node.value(0)
    axis = layout.axis_of(node.attr("axis", 0), len(x.shape))
    reduction = _reduction(node)
    indexes(b, node, 1, x.shape[axis], distinct=_distinct(reduction, axis))
    return sc.scatter_elements(b, x, node.value(1), node.value(2), axis, reduction)


@op("ScatterND", since=11)
def scatter_nd(b: Builder, node: Node) -> Value:
    """Slices written or combined at coordinates."""
    x, indices = node.value(0), node.value(1)
    depth = len(indices.shape) - 1 + len(x.shape) - len(node.value(2).shape)
    reduction = _reduction(node)
    for axis in range(max(depth, 0)):
        distinct = _distinct(reduction, len(indices.shape) - 1)
        indexes(b, node, 1, x.shape[axis], coordinate=axis, distinct=distinct)
    return sc.scatter_nd(b, x, indices, node.value(2), reduction)


@op("TensorScatter", since=24)
def tensor_scatter(b: Builder, node: Node) -> Value:
    """A cache with its next steps filled in."""
    circular = node.attr("mode", "linear") == "circular"
    axis = node.attr("axis", -2)
    room, steps = node.value(0).shape[axis], node.value(1).shape[axis]
    limit_values(b, node, 2, 0, ex.sub(room, 1 if circular else steps))
    return sc.tensor_scatter(b, node.value(0), node.value(1), node.optional(2), axis, circular)


@op("OneHot", since=9)
def one_hot(b: Builder, node: Node) -> Value:
    """Rows of off values with one on value."""
    depth = node.value(1)
    integral = depth if not ew.is_float(depth.dtype) else ew.cast(b, depth, "int64")
    limit_values(b, node, 1, 1, USUAL, usual=True)
    extent: Extent = b.known_extents(integral, "depth").scalars()[0]
    return indexing.one_hot(b, node.value(0), extent, node.value(2), node.attr("axis", -1))


@op("Trilu", since=14)
def trilu(b: Builder, node: Node) -> Value:
    """The upper or lower triangle."""
    k: Extent = node.known_positions(1, "diagonal").scalars()[0] if node.has(1) else 0
    return indexing.triangle(b, node.value(0), bool(node.attr("upper", 1)), k)


@op("EyeLike", since=9)
def eye_like(b: Builder, node: Node) -> Value:
    """Ones on a diagonal of a matrix of the input's shape."""
    x = node.value(0)
    code = node.attr("dtype", None)
    return indexing.eye(
        b, x.shape[0], x.shape[1], node.attr("k", 0), x.dtype if code is None else DTYPES[code]
    )


@op("ReverseSequence", since=10)
def reverse_sequence(b: Builder, node: Node) -> Value:
    """The first steps of each batch entry reversed."""
    limit_values(b, node, 1, 0, node.value(0).shape[node.attr("time_axis", 0)])
    return indexing.reverse_sequence(
        b, node.value(0), node.value(1), node.attr("batch_axis", 1), node.attr("time_axis", 0)
    )


@op("Tile", since=6)
def tile(b: Builder, node: Node) -> Value:
    """The input repeated along each axis."""
    repeats = node.known_extents(1, "repeat").scalars()
    return indexing.tile(b, node.value(0), repeats)


@op("ArrayFeatureExtractor", domain="ai.onnx.ml")
def array_feature_extractor(b: Builder, node: Node) -> Value:
    """Elements of the last axis at indices; a vector counts as one row."""
    x = node.value(0)
    rows = layout.unsqueeze(b, x, [0]) if len(x.shape) == 1 else x
    count = b.facts.simplify(ex.prod(node.value(1).shape))
    indexes(b, node, 1, rows.shape[-1])
    positions = indexing.check(b, layout.reshape(b, node.value(1), [count]), rows.shape[-1])
    return layout.take(b, rows, positions, len(rows.shape) - 1)


@op("Binarizer", domain="ai.onnx.ml")
def binarizer(b: Builder, node: Node) -> Value:
    """1 above the threshold, 0 elsewhere."""
    x = node.value(0)
    threshold = Known.of(float(node.attr("threshold", 0.0)), "float32")
    return ew.cast(b, ew.compare(b, x, ew.cast(b, threshold, x.dtype), "greater"), x.dtype)

"""Quantiles, counts, covariances and integrals of samples."""

from typing import Any

import numpy as np
from tvm import relax

from compiler.ir.aten.algebra import Array, argument, is_tensor, neighbours, optional
from compiler.ir.aten.dtypes import DEFAULT_FLOAT
from compiler.ir.aten.node import Node
from compiler.ir.aten.operands import scalar, to_float
from compiler.ir.aten.operators.creation import fill_with, integer_range
from compiler.ir.aten.operators.distances import norm_of
from compiler.ir.aten.registry import op
from compiler.ir.graph.builder import Builder
from compiler.ir.graph.values import Known, Value
from compiler.ir.ops.math import linear, scan
from compiler.ir.ops.math import reduce as rd
from compiler.ir.ops.pointwise import broadcast
from compiler.ir.ops.pointwise import elementwise as ew
from compiler.ir.ops.shape import indexing as ix
from compiler.ir.ops.shape import layout, selecting, sorting
from compiler.ir.ops.shape import scatter as sc
from compiler.ir.shapes import extents as ex
from compiler.ir.shapes.extents import Extent


def _last(b: Builder, node: Node, x: Value) -> tuple[Array, int | None]:
    """The reduced axis moved to the end, and where it was; all elements in one axis, and None,
    where the node names none.
    """
    array = Array(b, x)
    if not node.has("dim"):
        return array.reshape([b.facts.simplify(ex.prod(x.shape))]), None
    if not x.shape:
        return array.reshape([1]), None
    axis = node.axis("dim", array.rank)
    order = [*(i for i in range(array.rank) if i != axis), axis]
    return array.transpose(order), axis


def _extent(b: Builder, extent: Extent, dtype: str) -> Array:
    """An extent as a number of a dtype."""
    return Array(b, ew.cast(b, Known.of(b.facts.simplify(extent), "int64"), dtype))


def _is_nan(x: Array) -> Array:
    return x.compare("not_equal", x)


@op("quantile", "nanquantile")
def quantile(b: Builder, node: Node) -> Value:
    """Quantiles along an axis, or of all; NaN where an element is, or of the others for
    nanquantile.
    """
    x, axis = _last(b, node, node.value("self"))
    q = argument(b, node, "q").cast(x.dtype) if is_tensor(node, "q") else None
    points = q if q is not None else Array(b, scalar(b, node.float("q"), x.dtype))
    single = not points.shape
    points = points.reshape([1]) if single else points
    values = Array(b, sorting.top_k(b, x.value, x.shape[-1], x.rank - 1, False)[0])
    last = _extent(b, ex.maximum(ex.sub(x.shape[-1], 1), 0), x.dtype)
    numbers = _is_nan(x)
    if node.kind == "aten::nanquantile":
        last = ((~numbers).cast(x.dtype).reduce("sum", [x.rank - 1], True) - 1).at_least(0)
    ranks = points * last
    ranks = ranks.wrap(broadcast.expand(b, ranks.value, [*x.shape[:-1], points.shape[0]]))
    result = _interpolated(b, values, ranks, node.text("interpolation", "linear"))
    if node.kind == "aten::quantile":
        lost = numbers.reduce("max", [x.rank - 1], True)
        result = result.where(~lost, np.nan)
    return _arrange(node, result, axis, single, len(node.value("self").shape))


def _interpolated(b: Builder, values: Array, ranks: Array, mode: str) -> Array:
    """Sorted rows [.., n] at fractional positions [.., k]."""
    if mode == "nearest":
        ranks = ranks.wrap(ew.unary(b, ranks.value, relax.op.round, numpy=np.rint))
    below = ranks.floor()
    above = -(-ranks).floor()
    low, high = (
        values.wrap(ix.gather_elements(b, values.value, rank.cast("int64").value, values.rank - 1))
        for rank in (below, above)
    )
    if mode in ("lower", "nearest"):
        return low
    if mode == "higher":
        return high
    weight = ranks - below if mode == "linear" else (ranks - ranks) + 0.5
    near = low + weight * (high - low)
    far = high - (high - low) * (1 - weight)
    return low.where(low.compare("equal", high), near.where(weight < 0.5, far))


def _arrange(node: Node, result: Array, axis: int | None, single: bool, rank: int) -> Value:
    """Quantiles [.., k] as torch returns them: k first, or left out for one number."""
    keep = node.bool("keepdim", False)
    last = result.rank - 1
    front = result.transpose([last, *range(last)])
    if keep:
        if axis is None:
            front = front.reshape([front.shape[0], *[1] * rank])
        else:
            front = front.unsqueeze(axis + 1)
    return front.squeeze(0).value if single else front.value


@op("nanmedian")
def nanmedian(b: Builder, node: Node) -> Any:
    """The lower median of what is a number, and its index."""
    x, axis = _last(b, node, node.value("self"))
    ordered, order = sorting.top_k(b, x.value, x.shape[-1], x.rank - 1, False)
    counts = (
        (~_is_nan(x)).cast("int64").reduce("sum", [x.rank - 1], True)
        if ew.is_float(x.dtype)
        else Array(b, fill_with(b, [*x.shape[:-1], 1], Known.of(x.shape[-1], "int64")))
    )
    middle = Array(
        b, ew.cast(b, ((counts - 1).at_least(0).cast("float64") * 0.5).floor().value, "int64")
    )
    picked = [
        Array(b, ix.gather_elements(b, value, middle.value, x.rank - 1))
        for value in (ordered, order)
    ]
    if "dim" not in node.names:
        return picked[0].reshape([]).value
    return [_back(node, value, axis) for value in picked]


def _back(node: Node, reduced: Array, axis: int | None) -> Value:
    """A result [.., 1] with its axis where it was, or without it."""
    if axis is None:
        return reduced.reshape([]).value
    if not node.bool("keepdim", False):
        return reduced.squeeze(reduced.rank - 1).value
    last = reduced.rank - 1
    order = [*range(axis), last, *range(axis, last)]
    return reduced.transpose(order).value


@op("mode")
def mode(b: Builder, node: Node) -> list[Value]:
    """The most frequent element along an axis, the least of several, and where it last occurs."""
    x = argument(b, node, "self")
    axis = node.axis("dim", x.rank, -1) if x.rank else None
    order = [*(i for i in range(x.rank) if i != axis), axis] if x.rank else []
    rows = x.transpose([int(i or 0) for i in order]) if x.rank else x.reshape([1])
    last = rows.rank - 1
    equal = rows.unsqueeze(last + 1).compare("equal", rows.unsqueeze(last))
    counts = equal.cast("int64").reduce("sum", [last + 1])
    most = counts.reduce("max", [last], True)
    frequent = counts.compare("equal", most)
    highest = np.inf if ew.is_float(x.dtype) else np.iinfo(np.dtype(x.dtype)).max
    values = rows.where(frequent, highest).reduce("min", [last], True)
    positions = Array(b, integer_range(b, 0, rows.shape[last], 1, "int64"))
    spread = positions.wrap(broadcast.expand(b, positions.value, rows.shape))
    last_seen = spread.where(rows.compare("equal", values), -1).reduce("max", [last], True)
    return [_back(node, value, axis) for value in (values, last_seen)]


@op("bincount")
def bincount(b: Builder, node: Node) -> Value:
    """How often each number from 0 on occurs, or the sum of its weights."""
    x, weights = argument(b, node, "self"), optional(b, node, "weights")
    least = node.extent("minlength", 0)
    greatest = rd.reduce(b, x.cast("int64").value, "max", [0], False)
    needed = ex.add(b.known_integers(greatest, "greatest").scalars()[0], 1)
    count = node.as_size(ex.maximum(ex.maximum(needed, least), 0), "minlength")
    if weights is None:
        dtype, added = "int64", fill_with(b, x.shape, Known.of(1, "int64"))
    else:
        dtype = weights.dtype if weights.dtype in ("float32", "float64") else "float64"
        added = weights.cast(dtype).value
    empty = fill_with(b, [count], scalar(b, 0, dtype))
    positions = x.cast("int64").unsqueeze(1).value
    return sc.scatter_nd(b, empty, positions, added, sc.Reduction.ADD)


@op("histc")
def histc(b: Builder, node: Node) -> Value:
    """How many elements fall into each of `bins` equal parts of [min, max], of the elements' own
    range where both are equal.
    """
    x = argument(b, node, "self")
    x = x.reshape([b.facts.simplify(ex.prod(x.shape))])
    low, high, bins = node.float("min", 0), node.float("max", 0), node.int("bins", 100)
    dtype = x.dtype
    x = x if ew.is_float(dtype) else x.cast(DEFAULT_FLOAT)
    if low != high:
        ends = [Array(b, scalar(b, end, x.dtype)) for end in (low, high)]
    else:
        ends = [x.reduce("min"), x.reduce("max")]
        flat = ends[0].compare("equal", ends[1])
        ends = [(ends[0] - 1).where(flat, ends[0]), (ends[1] + 1).where(flat, ends[1])]
    position = ((x - ends[0]) * bins / (ends[1] - ends[0])).floor().at_most(bins - 1)
    inside = (x >= ends[0]) & (x <= ends[1])
    numbers = Array(b, Known.of(np.arange(bins), x.dtype)).unsqueeze(1)
    hits = numbers.compare("equal", position) & inside
    return hits.cast(dtype).reduce("sum", [1]).value


@op("cov")
def cov(b: Builder, node: Node) -> Value:
    """The covariance of rows of observations."""
    return _squeezed(_covariance(b, node, node.int("correction", 1))).value


@op("corrcoef")
def corrcoef(b: Builder, node: Node) -> Value:
    """The correlation coefficients of rows of observations."""
    matrix = _covariance(b, node, 1)
    if matrix.b.facts.same(matrix.shape[0], 1) is True:
        return (matrix / matrix).reshape([]).value
    positions = Array(b, integer_range(b, 0, matrix.shape[0], 1, "int64"))
    own = positions.unsqueeze(1).compare("equal", positions.unsqueeze(0))
    deviations = matrix.where(own, 0).reduce("sum", [1]).sqrt()
    ratio = matrix / deviations.unsqueeze(1) / deviations.unsqueeze(0)
    return ratio.at_least(-1).at_most(1).value


def _squeezed(matrix: Array) -> Array:
    one = matrix.b.facts.same(matrix.shape[0], 1) is True
    return matrix.reshape([]) if one else matrix


def _covariance(b: Builder, node: Node, correction: int) -> Array:
    x = Array(b, to_float(b, node.value("self")))
    x = x.reshape([1, x.shape[0] if x.rank else 1]) if x.rank < 2 else x
    frequencies, importance = optional(b, node, "fweights"), optional(b, node, "aweights")
    parts = [item.cast(x.dtype) for item in (frequencies, importance) if item is not None]
    weights = parts[0] if len(parts) == 1 else parts[0] * parts[1] if parts else None
    total = _extent(b, x.shape[1], x.dtype) if weights is None else weights.reduce("sum")
    weighted = x if weights is None else x * weights
    centred = x - (weighted.reduce("sum", [1]) / total).unsqueeze(1)
    if weights is None:
        norm = _extent(b, ex.maximum(ex.sub(x.shape[1], correction), 0), x.dtype)
    elif importance is not None and correction:
        spread = (weights * importance.cast(x.dtype)).reduce("sum") / total
        norm = (total - spread * correction).at_least(0)
    else:
        norm = (total - correction).at_least(0)
    other = centred if weights is None else centred * weights
    covariance = linear.matmul(b, centred.value, other.transpose([1, 0]).value)
    return Array(b, covariance) / norm


@op("trapezoid", "trapz", "cumulative_trapezoid")
def trapezoid(b: Builder, node: Node) -> Value:
    """The integral by trapezoids along an axis, at points x or dx apart."""
    y = argument(b, node, "y")
    axis = node.axis("dim", y.rank, -1)
    if "x" in node.names:
        x = argument(b, node, "x")
        if x.rank == 1:
            x = x.reshape([x.shape[0] if i == axis else 1 for i in range(y.rank)])
        own = x.rank - (y.rank - axis)
        after, before = neighbours(x, own)
        widths: Any = after - before
    else:
        widths = node.float("dx", 1.0)
    after, before = neighbours(y, axis)
    pairs = after + before
    if not ew.is_float(y.dtype):
        pairs = pairs.cast(DEFAULT_FLOAT)
        widths = widths.cast(DEFAULT_FLOAT) if isinstance(widths, Array) else widths
    parts = pairs * widths * 0.5
    if node.kind != "aten::cumulative_trapezoid":
        return parts.reduce("sum", [axis]).value
    return scan.cumulate(b, parts.value, axis, lambda p, q: p + q, 0, False, False)


@op("msort")
def msort(b: Builder, node: Node) -> Value:
    """Sorted along the first axis."""
    x = node.value("self")
    if not x.shape:
        return x
    source = ew.cast(b, x, "int8") if x.dtype == "bool" else x
    return ew.cast(b, sorting.top_k(b, source, x.shape[0], 0, False)[0], x.dtype)


@op("unique_consecutive")
def unique_consecutive(b: Builder, node: Node) -> list[Value]:
    """The first of each run of equal elements, which run each element is of, and how long the
    runs are.
    """
    x = argument(b, node, "self")
    if node.has("dim") and x.rank != 1:
        node.fail("runs of slices along an axis are not supported", reason="unsupported_form")
    shape = x.shape
    x = x.reshape([b.facts.simplify(ex.prod(shape))])
    size = x.shape[0]
    if b.facts.decide(ex.greater_equal(size, 1)) is not True:
        node.fail("runs of a tensor that may be empty are not supported", reason="unsupported_form")
    after, before = neighbours(x, 0)
    apart = after.compare("not_equal", before)
    first = Known.of(np.ones(1, bool), "bool")
    starts = layout.concat(b, [first, apart.value], 0)
    starts = b.adopt(b.tensor(starts).expr, [size])
    values = selecting.compress(b, x.value, starts, None)
    runs = scan.cumulate(b, ew.cast(b, starts, "int64"), 0, lambda p, q: p + q, 0, False, False)
    inverse = Array(b, runs) - 1
    zeros = fill_with(b, [values.shape[0]], scalar(b, 0, "int64"))
    ones = fill_with(b, [size], scalar(b, 1, "int64"))
    counts = sc.scatter_nd(b, zeros, inverse.unsqueeze(1).value, ones, sc.Reduction.ADD)
    results = [values, inverse.reshape(shape).value, counts]
    return results[: len(list(node.raw.outputs()))]


@op("renorm")
def renorm(b: Builder, node: Node) -> Value:
    """Slices along an axis whose p-norm is above maxnorm scaled down to it."""
    x = argument(b, node, "self")
    axis, most = node.axis("dim", x.rank), node.float("maxnorm")
    others = [i for i in range(x.rank) if i != axis]
    norm = x.wrap(norm_of(b, x.value, node.float("p"), others, True))
    factor = (most / (norm + 1e-7)).where(norm > most, 1)
    return (x * factor).value

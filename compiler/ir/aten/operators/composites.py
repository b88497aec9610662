"""Operators that are others one after the other: products by blocks, combinations, copies of views,
bags of embeddings.
"""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np

from compiler.ir.aten import registry
from compiler.ir.aten.algebra import Array, argument
from compiler.ir.aten.memory import Step
from compiler.ir.aten.node import Node
from compiler.ir.aten.operands import scalar
from compiler.ir.aten.operators import (  # noqa: F401  whose views are copied here
    joining,
    strides,
    views,
)
from compiler.ir.aten.operators.creation import fill_with, integer_range
from compiler.ir.aten.operators.distances import norm_of
from compiler.ir.aten.operators.indexing import indexes
from compiler.ir.aten.operators.matrices import embed_diagonal
from compiler.ir.aten.registry import op, refuse, view
from compiler.ir.graph.builder import Builder
from compiler.ir.graph.indices import Indices
from compiler.ir.graph.values import Known, Value
from compiler.ir.ops.math import linear
from compiler.ir.ops.nn import pad as nn_pad
from compiler.ir.ops.pointwise import broadcast
from compiler.ir.ops.pointwise import elementwise as ew
from compiler.ir.ops.shape import indexing as ix
from compiler.ir.ops.shape import layout, selecting
from compiler.ir.ops.shape import scatter as sc
from compiler.ir.shapes import extents as ex


def _copy(name: str) -> None:
    @op(f"{name}_copy")
    def handler(b: Builder, node: Node) -> Value:
        step = registry.VIEW[f"aten::{name}"](b, node)
        return step(b, node.value(node.names[0]))

    handler.__doc__ = f"A copy of what `{name}` shows."


for _name in (
    *("alias", "diagonal", "expand", "permute", "select", "slice", "squeeze", "t", "transpose"),
    *("as_strided", "unfold", "unsqueeze", "view"),
):
    _copy(_name)

refuse("as_strided_", why="a tensor's strides are not changed in place; use as_strided or views")


@view("adjoint", "matrix_H", "mH")
def adjoint(b: Builder, node: Node) -> Step:
    """The last two axes exchanged: no tensor of ours is complex."""
    rank = len(node.value("self").shape)
    order = [*range(rank - 2), rank - 1, rank - 2] if rank > 1 else list(range(rank))
    return lambda b, x: layout.transpose(b, x, order)


@view("conj", "_conj", "resolve_conj", "resolve_neg", "_neg_view_of_real")
def conjugate(b: Builder, node: Node) -> Step:
    """Self: no tensor of ours is complex."""
    return lambda b, x: x


@op("conj_physical", "_conj_physical")
def conjugate_copy(b: Builder, node: Node) -> Value:
    """A copy: no tensor of ours is complex."""
    return node.value("self")


@op("rot90")
def rot90(b: Builder, node: Node) -> Value:
    """The plane of two axes turned k times by a right angle."""
    x = node.value("self")
    first, second = node.axes("dims", len(x.shape)) or [0, 1]
    turns = node.int("k", 1) % 4
    if turns == 2:
        return _flipped(b, _flipped(b, x, first), second)
    order = list(range(len(x.shape)))
    if turns:
        order[first], order[second] = second, first
    if turns == 1:
        x = _flipped(b, x, second)
    x = layout.transpose(b, x, order)
    return _flipped(b, x, second) if turns == 3 else x


def _flipped(b: Builder, x: Value, axis: int) -> Value:
    return layout.strided_slice(b, x, axis, -1, -layout.INT64_MAX, -1)


@op("diagflat")
def diagflat(b: Builder, node: Node) -> Value:
    """All elements on a diagonal of a matrix of zeros."""
    x = node.value("self")
    flat = layout.reshape(b, x, [b.facts.simplify(ex.prod(x.shape))])
    return embed_diagonal(b, flat, node.int("offset", 0))


@op("kron")
def kron(b: Builder, node: Node) -> Value:
    """Kronecker's product: every element of self times the whole of other."""
    x, y = joining.promote(b, [node.value("self"), node.value("other")])
    rank = max(len(x.shape), len(y.shape))
    shapes = [[*[1] * (rank - len(value.shape)), *value.shape] for value in (x, y)]
    left = layout.reshape(b, x, [e for extent in shapes[0] for e in (extent, 1)])
    right = layout.reshape(b, y, [e for extent in shapes[1] for e in (1, extent)])
    merged = [b.facts.simplify(ex.mul(p, q)) for p, q in zip(*shapes, strict=True)]
    return layout.reshape(b, ew.multiply(b, left, right), merged)


@op("block_diag")
def block_diag(b: Builder, node: Node) -> Value:
    """Matrices along the diagonal of a matrix of zeros."""
    blocks = []
    for value in joining.promote(b, node.values("tensors")):
        rows = [1] * (2 - len(value.shape))
        blocks.append(layout.reshape(b, value, [*rows, *value.shape]) if rows else value)
    widths = [block.shape[1] for block in blocks]
    parts = [
        nn_pad.pad_zero(b, block, [0, ex.total(widths[:i])], [0, ex.total(widths[i + 1 :])])
        for i, block in enumerate(blocks)
    ]
    return layout.concat(b, parts, 0)


@op("cartesian_prod")
def cartesian_prod(b: Builder, node: Node) -> Value:
    """Every choice of an element of each vector, a row each."""
    values = joining.promote(b, node.values("tensors"))
    if len(values) == 1:
        return values[0]
    extents = [value.shape[0] for value in values]
    total = b.facts.simplify(ex.prod(extents))
    columns = []
    for i, value in enumerate(values):
        shape = [extent if i == j else 1 for j, extent in enumerate(extents)]
        spread = broadcast.expand(b, layout.reshape(b, value, shape), extents)
        columns.append(layout.reshape(b, spread, [total, 1]))
    return layout.concat(b, columns, 1)


@op("combinations")
def combinations(b: Builder, node: Node) -> Value:
    """Every choice of r elements of a vector, a row each."""
    x, r = node.value("self"), node.int("r", 2)
    choose: Any = (
        itertools.combinations_with_replacement
        if node.bool("with_replacement", False)
        else itertools.combinations
    )
    rows = list(choose(range(_known(b, node, x.shape[0])), r))
    table = np.asarray(rows, np.int64).reshape(len(rows), r)
    return _rows(b, x, table)


def _known(b: Builder, node: Node, extent: ex.Extent) -> int:
    number = b.facts.simplify(extent)
    if not isinstance(number, int):
        node.fail(
            "choices among a number of elements that only run time knows are not supported",
            reason="data_dependent",
            hint="fix the dim",
        )
    return number


def _rows(b: Builder, x: Value, table: np.ndarray[Any, Any]) -> Value:
    """x at constant indices into its first axis."""
    size = int(x.shape[0])  # type: ignore[arg-type]
    flat = layout.take(b, x, Indices.constant([int(i) for i in table.flat], size), 0)
    return layout.reshape(b, flat, [*table.shape, *x.shape[1:]])


@op("pdist")
def pdist(b: Builder, node: Node) -> Value:
    """Distances of every pair of rows by the p-norm."""
    x = node.value("self")
    pairs = np.triu_indices(_known(b, node, x.shape[0]), 1)
    lhs, rhs = (_rows(b, x, np.asarray(side)) for side in pairs)
    return norm_of(b, ew.subtract(b, lhs, rhs), node.float("p", 2.0), [1], False)


@op("vander", "linalg_vander")
def vander(b: Builder, node: Node) -> Value:
    """Powers of each element, a row each, falling unless `increasing`."""
    x = argument(b, node, "x")
    count = node.int("N") if node.has("N") else _known(b, node, x.shape[-1])
    columns = [x.wrap(fill_with(b, x.shape, scalar(b, 1, x.dtype)))]
    for _ in range(count - 1):
        columns.append(columns[-1] * x)
    rising = node.kind == "aten::linalg_vander" or node.bool("increasing", False)
    ordered = columns[:count] if rising else columns[:count][::-1]
    last = x.rank
    return layout.concat(b, [column.unsqueeze(last).value for column in ordered], last)


@op("nonzero_static")
def nonzero_static(b: Builder, node: Node) -> Value:
    """The first coordinates of elements that are not zero, filled up to a number of rows."""
    rows = layout.transpose(b, selecting.nonzero(b, node.value("self")), [1, 0])
    size = node.size("size")
    fill = fill_with(b, [size, rows.shape[1]], scalar(b, node.get("fill_value", -1), "int64"))
    filled = layout.concat(b, [rows, fill], 0)
    result = layout.strided_slice(b, filled, 0, 0, size, 1)
    return b.adopt(b.tensor(result).expr, [size, rows.shape[1]])


@op("max_unpool2d", "max_unpool3d")
def max_unpool(b: Builder, node: Node) -> Value:
    """Elements put at their positions in larger channels of zeros."""
    x, positions = node.value("self"), node.value("indices")
    rank = int(node.kind[-2])
    size = node.sizes("output_size")
    lead, inner = x.shape[: len(x.shape) - rank], x.shape[len(x.shape) - rank :]
    rows, taken, area = (b.facts.simplify(ex.prod(extents)) for extents in (lead, inner, size))
    flat = [layout.reshape(b, value, [rows, taken]) for value in (x, positions)]
    empty = fill_with(b, [rows, area], scalar(b, 0, x.dtype))
    written = sc.scatter_elements(b, empty, flat[1], flat[0], 1, sc.Reduction.NONE)
    return layout.reshape(b, written, [*lead, *size])


@op("embedding_bag", "_embedding_bag", "_embedding_bag_forward_only")
def embedding_bag(b: Builder, node: Node) -> list[Any]:
    """Sums, means or maxima of the rows of each bag; what gradients need is not supported."""
    if any(list(output.uses()) for output in list(node.raw.outputs())[1:]):
        node.fail(
            "of embedding_bag only the bags are supported, not what their gradients need",
            reason="unsupported_form",
        )
    weight = argument(b, node, "weight")
    indices, offsets = argument(b, node, "indices"), argument(b, node, "offsets")
    indexes(b, node, "indices", weight.shape[0])
    taken = layout.take(b, weight.value, ix.check(b, indices.value, weight.shape[0]), 0)
    member = _membership(b, node, indices, offsets)
    padding = node.int("padding_idx") if node.has("padding_idx") else None
    # Of the operator below torch's function, -1 is no row.
    if padding is not None and (padding >= 0 or node.kind == "aten::embedding_bag"):
        row = padding if padding >= 0 else ex.add(weight.shape[0], padding)
        counted = indices.cast("int64").compare(
            "not_equal", Array(b, Known.of(b.facts.simplify(row), "int64"))
        )
        member = member & counted.unsqueeze(0)
    return [_bags(node, Array(b, taken), member).value, None, None, None]


def _membership(b: Builder, node: Node, indices: Array, offsets: Array) -> Array:
    """bool[bags, indices]: which bag an index is in; each begins at its offset."""
    count = indices.shape[0]
    offsets = offsets.cast("int64")
    positions = Array(b, integer_range(b, 0, count, 1, "int64")).unsqueeze(0)
    begun = offsets.unsqueeze(1) <= positions
    if node.bool("include_last_offset", False):
        bags = b.facts.simplify(ex.sub(offsets.shape[0], 1))
        ended = offsets.slice(0, 1, layout.INT64_MAX)
        starts = offsets.slice(0, 0, bags)
        return (starts.unsqueeze(1) <= positions) & (ended.unsqueeze(1) > positions)
    end = fill_with(b, [1], Array(b, scalar(b, count, "int64")).value)
    later = layout.concat(b, [offsets.slice(0, 1, layout.INT64_MAX).value, end], 0)
    ends = Array(b, b.adopt(b.tensor(later).expr, offsets.shape))
    return begun & (ends.unsqueeze(1) > positions)


def _bags(node: Node, rows: Array, member: Array) -> Array:
    b, mode = rows.b, node.int("mode", 0)
    scales = node.optional("per_sample_weights")
    if scales is not None:
        rows = rows * Array(b, scales).unsqueeze(1)
    if mode == 2:
        chosen = rows.unsqueeze(0).where(member.unsqueeze(2), -math.inf)
        filled = member.reduce("max", [1], True)
        return chosen.reduce("max", [1]).where(filled, 0)
    share = member.cast(rows.dtype)
    total = Array(b, linear.matmul(b, share.value, rows.value))
    if mode == 0:
        return total
    return total / share.reduce("sum", [1], True).at_least(1)


refuse("resize_", "resize_as_", why="a tensor's size is not changed in place; use reshape or pad")
refuse("hash_tensor", why="a hash of a tensor's bits is no part of a model; compute it outside")
refuse("istft", why="signals are not put together from spectra of windows; use irfft and fold")

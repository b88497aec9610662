"""Writing at computed positions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from compiler.ir.aten import positions, registry
from compiler.ir.aten.algebra import argument
from compiler.ir.aten.memory import Ref
from compiler.ir.aten.node import Node
from compiler.ir.aten.operands import operand, scalar
from compiler.ir.aten.operators.indexing import clamp_indices, index_tensors, indexes
from compiler.ir.aten.registry import op
from compiler.ir.graph.builder import Builder
from compiler.ir.graph.values import Value
from compiler.ir.ops.math import division
from compiler.ir.ops.pointwise import broadcast
from compiler.ir.ops.pointwise import elementwise as ew
from compiler.ir.ops.shape import layout, selecting
from compiler.ir.ops.shape import scatter as sc
from compiler.ir.shapes import extents as ex
from compiler.ir.shapes.extents import Extent


@op("index_put", "_index_put_impl")
def index_put(b: Builder, node: Node) -> Value:
    """self with the elements at advanced indices replaced by `values`, or added to."""
    x = node.value("self")
    values = ew.cast(b, node.value("values"), x.dtype)
    items = node.items("indices")
    if len(items) == 1 and isinstance(items[0], Ref):
        mask = node.memory.read(items[0])
        if (
            mask.dtype in ("bool", "uint8")
            and not values.shape
            and not node.bool("accumulate", False)
        ):
            shaped = layout.reshape(b, mask, [*mask.shape, *[1] * (len(x.shape) - len(mask.shape))])
            return ew.where(b, ew.cast(b, shaped, "bool"), values, x)
    reduction = sc.Reduction.ADD if node.bool("accumulate", False) else sc.Reduction.NONE
    return _scattered(b, x, index_tensors(b, node, x), values, reduction)


@op("_unsafe_masked_index_put_accumulate")
def masked_index_put(b: Builder, node: Node) -> Value:
    """`values` added to self at advanced indices where a mask holds; the other indices may be out
    of range.
    """
    x = node.value("self")
    values = argument(b, node, "values").cast(x.dtype).where(argument(b, node, "mask"), 0)
    indices = clamp_indices(b, x, index_tensors(b, node, x), from_end=True)
    return _scattered(b, x, indices, values.value, sc.Reduction.ADD)


def _scattered(
    b: Builder, x: Value, indices: dict[int, Value], values: Value, reduction: sc.Reduction
) -> Value:
    """The indexed axes moved to the front, written, and moved back. `values` has the axes of the
    indices where the indexed ones are if those are neighbours, else first.
    """
    axes = sorted(indices)
    shape = next(iter(indices.values())).shape
    lead = list(range(axes[0])) if axes[-1] - axes[0] == len(axes) - 1 else []
    tail = [axis for axis in range(len(x.shape)) if axis not in (*axes, *lead)]
    target = [*(x.shape[axis] for axis in lead), *shape, *(x.shape[axis] for axis in tail)]
    spread = broadcast.expand(b, values, target)
    forward = [*axes, *lead, *tail]
    rank = len(shape)
    moved = layout.transpose(
        b,
        spread,
        [
            *range(len(lead), len(lead) + rank),
            *range(len(lead)),
            *range(len(lead) + rank, len(target)),
        ],
    )
    index_rows = layout.concat(
        b, [layout.unsqueeze(b, ew.cast(b, indices[axis], "int64"), [rank]) for axis in axes], rank
    )
    written = sc.scatter_nd(b, layout.transpose(b, x, forward), index_rows, moved, reduction)
    return layout.transpose(b, written, [forward.index(axis) for axis in range(len(x.shape))])


_REDUCTIONS = {
    None: sc.Reduction.NONE, "add": sc.Reduction.ADD, "sum": sc.Reduction.ADD,
    "mean": sc.Reduction.ADD,
    "multiply": sc.Reduction.MUL, "prod": sc.Reduction.MUL, "amax": sc.Reduction.MAX,
    "amin": sc.Reduction.MIN,
}  # fmt: skip


@op("scatter", "scatter_add", "scatter_reduce")
def scatter(b: Builder, node: Node) -> Value:
    """`src` (a tensor or one number) written along an axis at indices, or combined with what is
    there, or among itself.
    """
    x, index = node.value("self"), node.value("index")
    axis = node.axis("dim", len(x.shape))
    indexes(b, node, "index", x.shape[axis])
    source = _source(b, node, x, index)
    name = "sum" if node.kind == "aten::scatter_add" else node.get("reduce", None)
    return _combined(b, x, index, source, axis, name, alone=not node.bool("include_self", True))


@op("index_reduce")
def index_reduce(b: Builder, node: Node) -> Value:
    """Slices of `source` along an axis combined with those of self at a vector of indices."""
    target, index, source = node.value("self"), node.value("index"), node.value("source")
    x = target if target.shape else layout.reshape(b, target, [1])
    axis = node.axis("dim", len(x.shape))
    indexes(b, node, "index", x.shape[axis])
    index = index if index.shape else layout.reshape(b, index, [1])
    source = source if source.shape else layout.reshape(b, source, [1])
    shape = [-1 if i == axis else 1 for i in range(len(source.shape))]
    column = layout.reshape(b, index, [source.shape[axis] if e == -1 else e for e in shape])
    spread = broadcast.expand(b, column, source.shape)
    alone = not node.bool("include_self", True)
    combined = _combined(b, x, spread, source, axis, node.get("reduce"), alone)
    return layout.reshape(b, combined, target.shape)


@op("put")
def put(b: Builder, node: Node) -> Value:
    """The flattened tensor with elements at indices replaced by those of `source`, or added to."""
    x, index = node.value("self"), node.value("index")
    size, count = (b.facts.simplify(ex.prod(value.shape)) for value in (x, index))
    indexes(b, node, "index", size)
    flat = layout.reshape(b, x, [size])
    source = layout.reshape(b, ew.cast(b, node.value("source"), x.dtype), [count])
    reduction = sc.Reduction.ADD if node.bool("accumulate") else sc.Reduction.NONE
    written = sc.scatter_elements(b, flat, layout.reshape(b, index, [count]), source, 0, reduction)
    return layout.reshape(b, written, x.shape)


def _combined(
    b: Builder, x: Value, index: Value, source: Value, axis: int, name: Any, alone: bool
) -> Value:
    """`source` combined with what x has at the indices, or among itself."""
    reduction = _REDUCTIONS[name]
    old = (
        sc.scatter_elements(b, x, index, _neutral(b, source, reduction), axis, sc.Reduction.NONE)
        if alone
        else x
    )
    combined = sc.scatter_elements(b, old, index, source, axis, reduction)
    return _mean(b, combined, index, axis, alone) if name == "mean" else combined


def _source(b: Builder, node: Node, x: Value, index: Value) -> Value:
    """The written values in the shape of the indices."""
    if not isinstance(node.get("src", None), Ref):
        return broadcast.expand(
            b,
            layout.reshape(b, scalar(b, node.get("value"), x.dtype), [1] * len(index.shape)),
            index.shape,
        )
    source = ew.cast(b, node.value("src"), x.dtype)
    for axis, (have, want) in enumerate(zip(source.shape, index.shape, strict=True)):
        if b.facts.same(have, want) is not True:
            source = layout.strided_slice(b, source, axis, 0, want, 1)
    return source


def _neutral(b: Builder, like: Value, reduction: sc.Reduction) -> Value:
    """The reduction's neutral element in the shape and dtype of `like`."""
    info = np.iinfo(np.dtype(like.dtype)) if ew.is_integer(like.dtype) else None
    least, most = (-np.inf, np.inf) if info is None else (info.min, info.max)
    number = {sc.Reduction.MUL: 1, sc.Reduction.MAX: least, sc.Reduction.MIN: most}.get(
        reduction, 0
    )
    return broadcast.expand(
        b, layout.reshape(b, scalar(b, number, like.dtype), [1] * len(like.shape)), like.shape
    )


def _mean(b: Builder, total: Value, index: Value, axis: int, alone: bool) -> Value:
    """Sums divided by how many elements were added up at each place."""

    def full(shape: Sequence[Extent], number: int) -> Value:
        return broadcast.expand(
            b, layout.reshape(b, scalar(b, number, total.dtype), [1] * len(shape)), shape
        )

    counts = full(total.shape, 1)
    if alone:
        counts = sc.scatter_elements(
            b, counts, index, full(index.shape, 0), axis, sc.Reduction.NONE
        )
    counts = sc.scatter_elements(b, counts, index, full(index.shape, 1), axis, sc.Reduction.ADD)
    if ew.is_float(total.dtype):
        return ew.divide(b, total, counts)
    return division.quotient(b, total, counts, division.Direction.DOWN, checked=False)


@op("index_add", "index_copy", "index_fill")
def index_write(b: Builder, node: Node) -> Value:
    """Slices along an axis at a vector of indices added to, or replaced by slices or one number."""
    target, index = node.value("self"), node.value("index")
    x = target if target.shape else layout.reshape(b, target, [1])
    axis = node.axis("dim", len(x.shape))
    indexes(b, node, "index", x.shape[axis])
    index = index if index.shape else layout.reshape(b, index, [1])
    source = operand(
        b, node, node.get("value" if node.kind == "aten::index_fill" else "source"), x.dtype
    )
    if node.kind == "aten::index_fill":
        source = broadcast.expand(
            b, source, [*x.shape[:axis], index.shape[0], *x.shape[axis + 1 :]]
        )
    elif len(source.shape) < len(x.shape):
        source = layout.unsqueeze(b, source, [axis])
    alpha = node.get("alpha", 1)
    if alpha != 1:
        source = ew.multiply(b, source, scalar(b, alpha, x.dtype))
    reduction = sc.Reduction.ADD if node.kind == "aten::index_add" else sc.Reduction.NONE
    written = _scattered(b, x, {axis: index}, source, reduction)
    return written if target.shape else layout.reshape(b, written, [])


@op("masked_scatter")
def masked_scatter(b: Builder, node: Node) -> Value:
    """Elements for which the mask holds replaced by those of `source`, in order."""
    x, source = node.value("self"), node.value("source")
    mask = broadcast.expand(b, ew.cast(b, node.value("mask"), "bool"), x.shape)
    size = b.facts.simplify(ex.prod(x.shape))
    chosen = selecting.true_indices(b, layout.reshape(b, mask, [size]), "selected")
    count = chosen.shape[0]
    flat = layout.reshape(b, source, [b.facts.simplify(ex.prod(source.shape))])
    b.require(
        ex.less_equal(count, flat.shape[0]),
        "masked_scatter: the source has fewer elements than the mask selects",
    )
    updates = layout.strided_slice(b, flat, 0, 0, count, 1)
    written = sc.scatter_nd(
        b,
        layout.reshape(b, x, [size]),
        layout.unsqueeze(b, chosen, [1]),
        updates,
        sc.Reduction.NONE,
    )
    return layout.reshape(b, written, x.shape)


@op("copy")
def copy(b: Builder, node: Node) -> Value:
    """`src` in the shape and dtype of self."""
    x = node.value("self")
    return broadcast.expand(b, ew.cast(b, node.value("src"), x.dtype), x.shape)


@op("as_strided_scatter", "diagonal_scatter", "select_scatter", "slice_scatter")
def view_scatter(b: Builder, node: Node) -> Value:
    """self with one slice replaced by `src`."""
    x = node.value("self")
    step = registry.VIEW[node.kind.removesuffix("_scatter")](b, node)
    target = step(b, positions.of(b, x))
    return positions.put(
        b,
        x,
        target,
        broadcast.expand(b, ew.cast(b, node.value("src"), x.dtype), target.shape),
    )

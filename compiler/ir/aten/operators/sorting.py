"""Sorting, the greatest k, distinct elements."""

from __future__ import annotations

from typing import Any

import numpy as np

from compiler.ir.aten.node import Node
from compiler.ir.aten.registry import op
from compiler.ir.graph.builder import Builder
from compiler.ir.graph.values import Known, Value
from compiler.ir.ops.pointwise import elementwise as ew
from compiler.ir.ops.shape import layout, sorting
from compiler.ir.ops.shape.kth import select_kth
from compiler.ir.shapes import extents as ex
from compiler.ir.shapes.extents import Extent


def _ordered(b: Builder, node: Node, x: Value, k: Extent | None, largest: bool) -> list[Any]:
    if not x.shape:
        return [x, Known(np.asarray(0, np.int64), "int64")]
    axis = node.axis("dim", len(x.shape), -1)
    source = ew.cast(b, x, "int8") if x.dtype == "bool" else x
    values, indices = sorting.top_k(b, source, x.shape[axis] if k is None else k, axis, largest)
    return [ew.cast(b, values, x.dtype), indices]


@op("topk")
def topk(b: Builder, node: Node) -> list[Any]:
    """The k greatest (or least) elements along an axis in order, and their indices."""
    return _ordered(b, node, node.value("self"), node.size("k"), node.bool("largest"))


@op("sort")
def sort(b: Builder, node: Node) -> Any:
    """Elements along an axis in order, and their indices; equal ones keep their order."""
    x = node.value("self")
    return _ordered(b, node, x, None, node.bool("descending", False))


@op("argsort")
def argsort(b: Builder, node: Node) -> Value:
    """Indices that sort along an axis."""
    return _ordered(b, node, node.value("self"), None, node.bool("descending", False))[1]  # type: ignore[no-any-return]


@op("_unique2", "unique_dim", "_unique")
def unique(b: Builder, node: Node) -> list[Value]:
    """Distinct elements in ascending order, where each input element went, and how often each
    occurs.
    """
    x = node.value("self")
    axis = node.axis("dim", len(x.shape)) if node.kind == "aten::unique_dim" else None
    values, _, inverse, counts = sorting.unique(b, x, axis, True)
    if axis is None:
        inverse = layout.reshape(b, inverse, x.shape)
    return [values, inverse, counts][: len(list(node.raw.outputs()))]


@op("kthvalue")
def kth(b: Builder, node: Node) -> Any:
    """The k-th least element along an axis and its index."""
    x, k = node.value("self"), node.size("k")
    if not x.shape:
        b.same(k, 1, "kthvalue: a tensor of rank 0 has one element")
        return [x, Known(np.asarray(0, np.int64), "int64")]
    axis, rank = node.axis("dim", len(x.shape)), len(x.shape)
    moved = layout.transpose(b, x, [*(i for i in range(rank) if i != axis), axis])
    count = b.facts.simplify(ex.prod(moved.shape[:-1]))
    rows = layout.reshape(b, moved, [count, moved.shape[-1]])
    picked = [layout.reshape(b, v, moved.shape[:-1]) for v in select_kth(b, rows, k)]
    keeps = node.bool("keepdim", False)
    return [layout.unsqueeze(b, v, [axis]) for v in picked] if keeps else picked


@op("median")
def median(b: Builder, node: Node) -> Any:
    """The lower median of all elements, or along an axis with its index."""
    x = node.value("self")
    if "dim" not in node.names:
        flat = layout.reshape(b, x, [b.facts.simplify(ex.prod(x.shape))])
        values, _ = sorting.top_k(b, flat, flat.shape[0], 0, False)
        middle = b.facts.simplify(ex.floordiv(ex.sub(flat.shape[0], 1), 2))
        lower = layout.strided_slice(b, values, 0, middle, b.facts.simplify(ex.add(middle, 1)), 1)
        last = _last(b, values, 0)
        return layout.squeeze(b, _where_nan(b, last, last, lower), [0])
    values, indices = _ordered(b, node, x, None, False)
    if not x.shape:
        return [values, indices]
    axis = node.axis("dim", len(x.shape))
    position = ex.floordiv(ex.sub(x.shape[axis], 1), 2)
    picked = [
        layout.strided_slice(
            b, v, axis, b.facts.simplify(position), b.facts.simplify(ex.add(position, 1)), 1
        )
        for v in (values, indices)
    ]
    if ew.is_float(x.dtype):
        last = _last(b, values, axis)
        first = sorting.arg_extreme(b, x, axis, True, False, nan=True)
        picked = [
            _where_nan(b, last, other, lower)
            for other, lower in zip((last, first), picked, strict=True)
        ]
    return picked if node.bool("keepdim", False) else [layout.squeeze(b, v, [axis]) for v in picked]


def _last(b: Builder, values: Value, axis: int) -> Value:
    """The last element along an axis in order, which is NaN where one is."""
    end = values.shape[axis]
    return layout.strided_slice(b, values, axis, b.facts.simplify(ex.sub(end, 1)), end, 1)


def _where_nan(b: Builder, last: Value, replacement: Value, usual: Value) -> Value:
    if not ew.is_float(last.dtype):
        return usual
    return ew.where(b, ew.compare(b, last, last, "not_equal"), replacement, usual)

"""Reductions of segments: runs of an axis that lengths or offsets give."""

from __future__ import annotations

import numpy as np

from compiler.ir.aten.algebra import Array, argument, is_tensor
from compiler.ir.aten.node import Node
from compiler.ir.aten.operators.creation import integer_range
from compiler.ir.aten.registry import op
from compiler.ir.graph.builder import Builder
from compiler.ir.graph.values import Value
from compiler.ir.ops.math import scan
from compiler.ir.ops.shape import layout

_NEUTRAL = {"sum": 0.0, "mean": 0.0, "prod": 1.0, "max": -np.inf, "min": np.inf}


@op("segment_reduce")
def segment_reduce(b: Builder, node: Node) -> Value:
    """data [B.., N, I..] with lengths [B.., S] or offsets [B.., S + 1] of segments of axis N to
    [B.., S, I..]; a mean of nothing is NaN.
    """
    data, kind = argument(b, node, "data"), node.text("reduce")
    if kind not in _NEUTRAL:
        node.fail(f"segments are not reduced by {kind!r}", reason="unsupported_form")
    starts, ends = _bounds(b, node)
    axis = starts.rank - 1
    positions = Array(b, integer_range(b, 0, data.shape[axis], 1, "int64"))
    member = (starts.unsqueeze(axis + 1) <= positions) & (ends.unsqueeze(axis + 1) > positions)
    spread = member.unsqueeze(*range(axis + 2, data.rank + 1)) if data.rank > axis + 1 else member
    chosen = data.unsqueeze(axis).where(spread, _NEUTRAL[kind])
    result = chosen.reduce("sum" if kind == "mean" else kind, [axis + 1])
    initial = node.get("initial", None)
    if initial is not None:
        result = _with_initial(result, kind, float(initial))
    if kind != "mean":
        return result.value
    counts = (ends - starts).cast(data.dtype)
    counts = counts.unsqueeze(*range(axis + 1, data.rank)) if data.rank > axis + 1 else counts
    empty = counts.compare("equal", 0)
    return (
        result.where(empty, result / counts).value
        if initial is not None
        else (result / counts).value
    )


def _bounds(b: Builder, node: Node) -> tuple[Array, Array]:
    """int64[B.., S]: where each segment begins and ends."""
    if is_tensor(node, "offsets"):
        offsets = argument(b, node, "offsets").cast("int64")
        last = offsets.rank - 1
        ends = offsets.slice(last, 1, layout.INT64_MAX)
        return offsets.slice(last, 0, ends.shape[last]), ends
    if not is_tensor(node, "lengths"):
        node.fail("segments need lengths or offsets", reason="unsupported_form")
    lengths = argument(b, node, "lengths").cast("int64")
    summed = scan.cumulate(b, lengths.value, lengths.rank - 1, lambda p, q: p + q, 0, False, False)
    ends = Array(b, summed)
    return ends - lengths, ends


def _with_initial(result: Array, kind: str, initial: float) -> Array:
    if kind == "max":
        return result.at_least(initial)
    if kind == "min":
        return result.at_most(initial)
    return result * initial if kind == "prod" else result + initial

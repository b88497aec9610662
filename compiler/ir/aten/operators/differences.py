"""Numerical gradients of samples along axes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tvm import te, tirx

from compiler.ir.aten.dtypes import DEFAULT_FLOAT
from compiler.ir.aten.memory import Ref
from compiler.ir.aten.node import Node
from compiler.ir.aten.registry import op
from compiler.ir.graph.builder import Builder
from compiler.ir.graph.values import Value
from compiler.ir.ops.pointwise import elementwise as ew
from compiler.ir.shapes import extents as ex

Read = Callable[[Any], Any]


@op("gradient")
def gradient(b: Builder, node: Node) -> list[Value]:
    """Central differences along each axis, and one-sided ones of first or second order at its ends;
    samples lie a spacing apart, or at coordinates.
    """
    x, order = node.value("self"), node.int("edge_order", 1)
    dtype = x.dtype if ew.is_float(x.dtype) else DEFAULT_FLOAT
    wide = dtype if dtype == "float64" else "float32"
    work = ew.cast(b, x, wide)
    axes = _axes(node, len(x.shape))
    spacing = node.get("spacing", None)
    if spacing is None or isinstance(spacing, (int, float)):
        steps: Sequence[Any] = [1 if spacing is None else spacing] * len(axes)
    else:
        steps = node.items("spacing")
    return [
        ew.cast(b, _along(b, node, work, axis, step, order), dtype)
        for axis, step in zip(axes, steps, strict=True)
    ]


def _axes(node: Node, rank: int) -> list[int]:
    if not node.has("dim"):
        return list(range(rank))
    return [node.as_axis(axis, rank) for axis in node.ints("dim")]


def _along(b: Builder, node: Node, x: Value, axis: int, step: Any, order: int) -> Value:
    extent = x.shape[axis]
    b.require(
        ex.greater_equal(extent, order + 1),
        f"a gradient with edges of order {order} needs {order + 1} samples",
    )
    last = ex.prim(b.facts.simplify(ex.maximum(ex.sub(extent, 1), 0)))
    others = [ew.cast(b, node.memory.read(step), x.dtype)] if isinstance(step, Ref) else []

    def compute(data: te.Tensor, *coordinates: te.Tensor) -> te.Tensor:
        def inside(position: Any) -> Any:
            # Too few samples, which every run checks, are not read past.
            return tirx.max(tirx.min(position, last), ex.prim(0))

        def element(*i: Any) -> Any:
            def read(position: Any) -> Any:
                return data(*i[:axis], inside(position), *i[axis + 1 :])

            if coordinates:
                return _gradient_at(read, lambda k: coordinates[0](inside(k)), i[axis], last, order)
            return _apart(read, tirx.const(float(step), x.dtype), i[axis], last, order)

        return te.compute([ex.prim(e) for e in x.shape], element, name="gradient")

    return b.te(compute, x, *others, name="gradient")


def _ends(k: Any, last: Any, first: Any, inner: Any, end: Any) -> Any:
    return tirx.if_then_else(k <= 0, first, tirx.if_then_else(k >= last, end, inner))


def _apart(x: Read, step: Any, k: Any, last: Any, order: int) -> Any:
    """The gradient at k of samples that lie a step apart."""
    inner = (x(k + 1) - x(k - 1)) / (step + step)
    if order == 1:
        return _ends(k, last, (x(k + 1) - x(k)) / step, inner, (x(k) - x(k - 1)) / step)

    def parabola(*positions: Any) -> Any:
        weights = (tirx.const(weight, step.ty.dtype) for weight in (1.5, -2.0, 0.5))
        first, second, third = (x(p) * w for p, w in zip(positions, weights, strict=True))
        return (first + second + third) / step

    return _ends(k, last, -parabola(k, k + 1, k + 2), inner, parabola(k, k - 1, k - 2))


def _gradient_at(x: Read, coordinate: Read, k: Any, last: Any, order: int) -> Any:
    """The gradient at k of samples at coordinates."""
    before, after = coordinate(k) - coordinate(k - 1), coordinate(k + 1) - coordinate(k)
    total = before + after
    inner = (
        x(k + 1) * (before / (after * total))
        + x(k) * ((after - before) / (before * after))
        - x(k - 1) * (after / (before * total))
    )
    if order == 1:
        return _ends(k, last, (x(k + 1) - x(k)) / after, inner, (x(k) - x(k - 1)) / before)

    def parabola(next_: Any, beyond: Any) -> Any:
        near, far = coordinate(next_) - coordinate(k), coordinate(beyond) - coordinate(next_)
        both = near + far
        return (
            x(next_) * (both / (near * far))
            - x(k) * ((near + both) / (near * both))
            - x(beyond) * (near / (far * both))
        )

    return _ends(k, last, parabola(k + 1, k + 2), inner, parabola(k - 1, k - 2))

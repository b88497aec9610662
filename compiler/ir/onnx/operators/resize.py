"""ONNX Resize and Upsample: which axes change, to what extents, by what scale."""

from collections.abc import Sequence
from enum import StrEnum
from fractions import Fraction
from typing import Any, TypeVar

import numpy as np
from tvm import te, tirx

from compiler.ir.graph.builder import Builder
from compiler.ir.graph.values import Known, Tensor, Value
from compiler.ir.onnx.node import Node
from compiler.ir.onnx.registry import op
from compiler.ir.ops.nn.positions import Along, Coordinates, RunTimeInputs
from compiler.ir.ops.nn.resize import Interpolation, NearestMode, Sampling, resize
from compiler.ir.ops.pointwise import elementwise as ew
from compiler.ir.ops.shape import indexing, layout
from compiler.ir.shapes import extents as ex
from compiler.ir.shapes.extents import Extent
from compiler.ir.shapes.facts import UNBOUNDED

Choice = TypeVar("Choice", bound=StrEnum)

_LARGEST = float(1 << 30)
"""The largest scale of a run: what it gives for any extent is an integer of 64 bits."""
EXACT = 64
"""A scale whose denominator is at most this gives extents by integer arithmetic, exactly."""


@op("Resize", since=11)
def resize_sizes(b: Builder, node: Node) -> Value:
    """To given sizes or by given scales, in any mode."""
    x = node.value(0)
    sampling = Sampling(
        _choice(node, "mode", Interpolation, "nearest"),
        _choice(node, "coordinate_transformation_mode", Coordinates, "half_pixel"),
        _choice(node, "nearest_mode", NearestMode, "round_prefer_floor"),
        bool(node.attr("antialias", 0)),
        bool(node.attr("exclude_outside", 0)),
        node.attr("cubic_coeff_a", -0.75),
        node.attr("extrapolation_value", 0.0),
    )
    axes = [
        layout.axis_of(axis, len(x.shape))
        for axis in node.attr("axes", None) or range(len(x.shape))
    ]
    roi = (
        _vector(b, node, 1, 2 * len(axes))
        if sampling.coordinates is Coordinates.TF_CROP_AND_RESIZE
        else None
    )
    scales = _vector(b, node, 2, len(axes))
    if scales is not None:
        return _by_scales(b, x, axes, scales, roi, sampling)
    sizes = node.known_extents(3, "size", 1).scalars()
    if len(sizes) != len(axes):
        node.fail(f"{len(sizes)} sizes for {len(axes)} axes", reason="shape")
    return _to_sizes(b, node, x, axes, sizes, roi, sampling)


@op("Resize", since=10)
@op("Upsample", since=9)
def resize_scales(b: Builder, node: Node) -> Value:
    """By scales, positions mapping without an offset."""
    scales = _vector(b, node, 1, len(node.value(0).shape))
    if scales is None:
        node.fail("scales are required", reason="input")
    return _old(b, node, scales)


@op("Upsample", since=7)
def upsample(b: Builder, node: Node) -> Value:
    """By scales that are an attribute."""
    return _old(b, node, Known(np.asarray(node.attr("scales"), np.float32), "float32"))


def _old(b: Builder, node: Node, scales: Value) -> Value:
    sampling = Sampling(
        _choice(node, "mode", Interpolation, "nearest"), Coordinates.ASYMMETRIC, NearestMode.SIMPLE
    )
    x = node.value(0)
    return _by_scales(b, x, list(range(len(x.shape))), scales, None, sampling)


def _choice(node: Node, name: str, kind: type[Choice], default: str) -> Choice:
    value = node.attr(name, default)
    value = "linear" if value == "bilinear" else value
    try:
        return kind(value)
    except ValueError:
        node.fail(f"{name} {value!r} is none of {', '.join(kind)}", reason="attribute")


def _vector(b: Builder, node: Node, index: int, length: int) -> Value | None:
    """An optional float vector of a certain length, an empty one counting as omitted; as
    float32.
    """
    value = node.optional(index)
    if value is None or b.facts.same(value.shape[0], 0) is True:
        return None
    b.same(
        value.shape[0], length, f"input {index} has {value.shape[0]} elements, {length} are needed"
    )
    value = ew.cast(b, value, "float32")
    return (
        value
        if isinstance(value, Known) and not value.symbolic
        else b.adopt(b.tensor(value).expr, [length])
    )


def _run_time_inputs(
    b: Builder, scales: Value | None, roi: Value | None, lanes: int
) -> RunTimeInputs:
    return RunTimeInputs(
        None if scales is None else b.tensor(scales), None if roi is None else b.tensor(roi), lanes
    )


def _by_scales(
    b: Builder, x: Value, axes: Sequence[int], scales: Value, roi: Value | None, sampling: Sampling
) -> Value:
    if isinstance(scales, Known):
        factors = [float(scale) for scale in scales.data]
        plan = [
            Along(axis, x.shape[axis], _scaled(b, x.shape[axis], scale), scale, lane)
            for lane, (axis, scale) in enumerate(zip(axes, factors, strict=True))
        ]
        return resize(b, x, plan, _run_time_inputs(b, None, roi, len(axes)), sampling)
    indexing.check_scales(b, scales, _LARGEST, f"a scale is not above 0 and at most {_LARGEST:.0f}")
    counts = _counts(b, x, axes, b.tensor(scales), 0.0)
    plan = [
        Along(axis, x.shape[axis], want, None, lane)
        for lane, (axis, want) in enumerate(zip(axes, counts, strict=True))
    ]
    return resize(b, x, plan, _run_time_inputs(b, scales, roi, len(axes)), sampling)


def _scaled(b: Builder, extent: Extent, scale: float) -> Extent:
    """floor(extent * scale), the product taken in float32 where integers cannot give it."""
    exact = Fraction(scale)
    if exact.denominator <= EXACT:
        return b.facts.simplify(ex.floordiv(ex.mul(extent, exact.numerator), exact.denominator))
    if isinstance(extent, int):
        return int(np.floor(np.float32(extent) * np.float32(scale)))
    return b.symbol(
        tirx.Cast("int64", tirx.floor(ex.prim(extent, "float32") * tirx.const(scale, "float32"))),
        "resized",
    )


def _counts(b: Builder, x: Value, axes: Sequence[int], scales: Tensor, offset: float) -> list[Any]:
    """floor(extent * scale + offset) along each axis, by run-time scales."""

    def entry(scale: te.Tensor, lane: Any) -> Any:
        extent: Any = ex.prim(x.shape[axes[-1]])
        for j in range(len(axes) - 2, -1, -1):
            extent = tirx.Select(
                tirx.EQ(lane, tirx.const(j, "int64")), ex.prim(x.shape[axes[j]]), extent
            )
        scaled = tirx.Cast("float32", extent) * scale(lane) + tirx.const(offset, "float32")
        # Neither NaN nor what no axis can have becomes an integer; -1 is refused as an extent.
        limit = tirx.const(UNBOUNDED, "float32")
        extent = tirx.floor(tirx.min(tirx.max(scaled, tirx.const(0, "float32")), limit))
        fits = tirx.And(scale(lane) > tirx.const(0, "float32"), scaled <= limit)
        return tirx.Select(fits, tirx.Cast("int64", extent), ex.prim(-1))

    counts = b.te(
        lambda scale: te.compute(scale.shape, lambda i: entry(scale, i), name="counts"),
        scales,
        name="counts",
    )
    return b.known_extents(counts, "resized").scalars()


def _to_sizes(
    b: Builder,
    node: Node,
    x: Value,
    axes: Sequence[int],
    sizes: Sequence[Any],
    roi: Value | None,
    sampling: Sampling,
) -> Value:
    policy = node.attr("keep_aspect_ratio_policy", "stretch")
    if policy not in ("stretch", "not_larger", "not_smaller"):
        node.fail(f"keep_aspect_ratio_policy {policy!r} is not known", reason="attribute")
    if policy != "stretch":
        return _one_scale(b, x, axes, sizes, roi, sampling, policy == "not_larger")
    wanted = b.extents(sizes, "resized")
    plan = []
    for lane, (axis, want) in enumerate(zip(axes, wanted, strict=True)):
        scale = 1.0 if b.facts.same(want, x.shape[axis]) is True else None
        plan.append(Along(axis, x.shape[axis], want, scale, lane))
    return resize(b, x, plan, _run_time_inputs(b, None, roi, len(axes)), sampling)


def _one_scale(
    b: Builder,
    x: Value,
    axes: Sequence[int],
    sizes: Sequence[Any],
    roi: Value | None,
    sampling: Sampling,
    smallest: bool,
) -> Value:
    """Every axis by the smallest (or largest) of the scales that the sizes ask for, extents rounded
    half up.
    """
    ratios = [
        ex.prim(size, "float32") / ex.prim(x.shape[axis], "float32")
        for axis, size in zip(axes, sizes, strict=True)
    ]
    scale = ratios[0]
    for ratio in ratios[1:]:
        scale = tirx.min(scale, ratio) if smallest else tirx.max(scale, ratio)
    scales = b.te(
        lambda: te.compute([tirx.const(len(axes), "int64")], lambda _: scale, name="scales"),
        name="scales",
    )
    counts = _counts(b, x, axes, scales, 0.5)
    plan = [
        Along(axis, x.shape[axis], want, None, lane, half_up=True)
        for lane, (axis, want) in enumerate(zip(axes, counts, strict=True))
    ]
    return resize(b, x, plan, _run_time_inputs(b, scales, roi, len(axes)), sampling)

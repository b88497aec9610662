"""Resampling: nearest, linear and cubic interpolation, and sampling at a grid of points."""

import math
from collections.abc import Sequence
from typing import Any

from tvm import tirx

from compiler.ir.aten.node import Node
from compiler.ir.aten.registry import op
from compiler.ir.graph.builder import Builder
from compiler.ir.graph.values import Value
from compiler.ir.ops.nn import sample
from compiler.ir.ops.nn.positions import Along, Coordinates, RunTimeInputs
from compiler.ir.ops.nn.resize import Interpolation, NearestMode, Sampling, resize
from compiler.ir.shapes import extents as ex
from compiler.ir.shapes.extents import Extent

_EXACT = 64

_KINDS = {
    "nearest": Interpolation.NEAREST,
    "linear": Interpolation.LINEAR,
    "bicubic": Interpolation.CUBIC,
}


@op(
    "upsample_nearest1d", "upsample_nearest2d", "upsample_nearest3d",
    "_upsample_nearest_exact1d", "_upsample_nearest_exact2d",
    "upsample_linear1d", "upsample_bilinear2d", "upsample_trilinear3d", "upsample_bicubic2d",
    "_upsample_bilinear2d_aa", "_upsample_bicubic2d_aa",
)  # fmt: skip
def upsample(b: Builder, node: Node) -> Value:
    """[N, C, *spatial] to given spatial extents, or by scale factors."""
    x = node.value("self" if "self" in node.names else "input")
    sampling = _sampling(node)
    spatial = list(range(2, len(x.shape)))
    scales = _scales(node, len(spatial))
    if node.has("output_size"):
        wanted = node.sizes("output_size")
    else:
        wanted = [
            _scaled(b, node, x.shape[axis], scale)
            for axis, scale in zip(spatial, scales, strict=True)
        ]
    # A scale that is given maps positions by itself; extents that are given decide without one.
    plan = [
        Along(
            axis,
            x.shape[axis],
            want,
            None if sampling.coordinates is Coordinates.ALIGN_CORNERS else scale,
        )
        for axis, want, scale in zip(spatial, b.extents(wanted, "resized"), scales, strict=True)
    ]
    return resize(b, x, plan, RunTimeInputs(None, None, len(plan)), sampling)


def _sampling(node: Node) -> Sampling:
    kind = next(kind for name, kind in _KINDS.items() if name in node.kind)
    if kind is Interpolation.NEAREST:
        exact = "exact" in node.kind
        return Sampling(
            kind,
            Coordinates.HALF_PIXEL if exact else Coordinates.ASYMMETRIC,
            NearestMode.ROUND_PREFER_CEIL if exact else NearestMode.FLOOR,
        )
    corners = node.bool("align_corners")
    antialias = node.kind.endswith("_aa")
    cubic = -0.5 if antialias else -0.75
    return Sampling(
        kind,
        Coordinates.ALIGN_CORNERS if corners else Coordinates.HALF_PIXEL,
        antialias=antialias,
        exclude_outside=antialias,
        cubic_a=cubic,
    )


def _scales(node: Node, rank: int) -> list[float | None]:
    """Scale factors by axis, None where they follow from the extents."""
    if "scale_factors" in node.names:
        if not node.has("scale_factors"):
            return [None] * rank
        return [_number(node, item) for item in node.items("scale_factors")]
    names = ["scales"] if rank == 1 else ["scales_d", "scales_h", "scales_w"][-rank:]
    return [_number(node, node.get(name, None)) for name in names]


def _number(node: Node, item: Any) -> float | None:
    if item is None or isinstance(item, (int, float)):
        return None if item is None else float(item)
    node.fail(
        "a scale factor is known only at run time",
        reason="data_dependent",
        hint="resize to extents instead",
    )


def _scaled(b: Builder, node: Node, extent: Extent, scale: float | None) -> Extent:
    """floor(extent * scale), the product taken in float64."""
    if scale is None:
        node.fail("neither extents nor scale factors are given", reason="input")
    numerator, denominator = scale.as_integer_ratio()
    if denominator <= _EXACT:
        return b.facts.simplify(ex.floordiv(ex.mul(extent, numerator), denominator))  # type: ignore[no-any-return]
    if isinstance(extent, int):
        return math.floor(extent * scale)
    return b.symbol(
        tirx.Cast("int64", tirx.floor(ex.prim(extent, "float64") * tirx.const(scale, "float64"))),
        "resized",
    )


_INTERPOLATIONS: Sequence[Interpolation] = (
    Interpolation.LINEAR,
    Interpolation.NEAREST,
    Interpolation.CUBIC,
)
_EDGES = (sample.Edge.ZEROS, sample.Edge.BORDER, sample.Edge.REFLECTION)


@op("grid_sampler", "grid_sampler_2d", "grid_sampler_3d")
def grid_sampler(b: Builder, node: Node) -> Value:
    """[N, C, *spatial] read at a grid of points in [-1, 1]."""
    x, grid = node.value("input"), node.value("grid")
    interpolation, edge = (
        _INTERPOLATIONS[node.int("interpolation_mode")],
        _EDGES[node.int("padding_mode")],
    )
    return sample.grid_sample(b, x, grid, interpolation, edge, node.bool("align_corners"))


@op("affine_grid_generator")
def affine_grid(b: Builder, node: Node) -> Value:
    """The grid of points that an affine map of [N, C, *spatial] reads."""
    return sample.affine_grid(
        b, node.value("theta"), node.sizes("size")[2:], node.bool("align_corners")
    )

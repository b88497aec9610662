"""Sampling images at computed positions: grid sampling and deformable convolution."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import product
from typing import Any

from tvm import te, tirx

from compiler.ir.graph.builder import Builder
from compiler.ir.graph.values import Value
from compiler.ir.ops.nn.conv import add_bias
from compiler.ir.ops.nn.norm import wide
from compiler.ir.ops.nn.pad import clamp, reflect
from compiler.ir.ops.nn.resize import Interpolation
from compiler.ir.ops.nn.window import Window, read_inside
from compiler.ir.ops.pointwise import elementwise as ew
from compiler.ir.shapes import extents as ex
from compiler.ir.shapes.extents import Extent

CUBIC_A = -0.75


class Edge(StrEnum):
    """The content outside of the image."""

    ZEROS = "zeros"
    BORDER = "border"
    REFLECTION = "reflection"


@dataclass(frozen=True)
class Sampler:
    """How to read an image of the given extents between and beyond its elements.

    corners: the outermost elements' centres bound the image, not their outer edges.
    """

    extents: tuple[Extent, ...]
    dtype: str
    interpolation: Interpolation = Interpolation.LINEAR
    edge: Edge = Edge.ZEROS
    corners: bool = True

    def _const(self, value: float) -> Any:
        return tirx.const(value, self.dtype)

    def _size(self, axis: int) -> Any:
        return ex.prim(self.extents[axis], self.dtype)

    def position(self, axis: int, normal: Any) -> Any:
        """The position on an axis of a coordinate in [-1, 1]."""
        one, two = self._const(1), self._const(2)
        if self.corners:
            return (normal + one) / two * (self._size(axis) - one)
        return ((normal + one) * self._size(axis) - one) / two

    def read(self, pixel: Callable[..., Any], positions: Sequence[Any], zero: Any) -> Any:
        """The image at positions that may be fractional; `pixel` reads an element of it."""
        if self.interpolation is Interpolation.NEAREST:
            near = [tirx.nearbyint(position) for position in positions]
            return self._pixel(
                pixel,
                [
                    self._inward(axis, position).astype("int64")
                    for axis, position in enumerate(near)
                ],
                zero,
            )
        inside = [self._inward(axis, position) for axis, position in enumerate(positions)]
        taps = [self._taps(position) for position in inside]
        total = None
        for combination in product(*taps):
            weight = combination[0][1]
            for _, other in combination[1:]:
                weight = weight * other
            term = self._pixel(pixel, [index for index, _ in combination], zero) * weight
            total = term if total is None else total + term
        return total

    def _taps(self, position: Any) -> list[tuple[Any, Any]]:
        """Elements around a position on one axis, and their weights."""
        base = tirx.floor(position)
        low, t = base.astype("int64"), position - base
        one = self._const(1)
        if self.interpolation is Interpolation.LINEAR:
            return [(low, one - t), (low + tirx.const(1, "int64"), t)]
        distances = [t + one, t, one - t, self._const(2) - t]
        weights = [
            self._far(distances[0]),
            self._near(distances[1]),
            self._near(distances[2]),
            self._far(distances[3]),
        ]
        return [
            (low + tirx.const(offset - 1, "int64"), weight) for offset, weight in enumerate(weights)
        ]

    def _near(self, d: Any) -> Any:
        return (self._const(CUBIC_A + 2) * d - self._const(CUBIC_A + 3)) * d * d + self._const(1)

    def _far(self, d: Any) -> Any:
        a = CUBIC_A
        return (
            (self._const(a) * d - self._const(5 * a)) * d + self._const(8 * a)
        ) * d - self._const(4 * a)

    def _inward(self, axis: int, position: Any) -> Any:
        """A position outside the image moved to the border or reflected there, as `edge` says."""
        cubic_border = self.edge is Edge.BORDER and self.interpolation is Interpolation.CUBIC
        if self.edge is Edge.ZEROS or cubic_border:
            # ONNX's reference also moves the centre of a cubic to the border; torch and ONNX
            # Runtime hold its taps there alone.
            return position
        low = self._const(0 if self.corners else -0.5)
        span = self._size(axis) - self._const(1) if self.corners else self._size(axis)
        outside = tirx.Or(position < low, position > low + span)
        if self.edge is Edge.BORDER:
            border = tirx.max(tirx.min(position, self._size(axis) - self._const(1)), self._const(0))
            return tirx.Select(outside, border, position)
        period = tirx.max(span * self._const(2), self._const(1e-30))
        distance = tirx.abs(position - low)
        rest = distance - tirx.floor(distance / period) * period
        folded = low + tirx.min(rest, span * self._const(2) - rest)
        return tirx.Select(outside, tirx.Select(span > self._const(0), folded, low), position)

    def _pixel(self, pixel: Callable[..., Any], index: Sequence[Any], zero: Any) -> Any:
        if self.edge is Edge.ZEROS:
            return read_inside(pixel, index, self.extents, zero)
        if self.edge is Edge.REFLECTION:
            index = [
                reflect(i, n) if self.corners else _mirrored(i, n)
                for i, n in zip(index, self.extents, strict=True)
            ]
        return pixel(*(clamp(i, extent) for i, extent in zip(index, self.extents, strict=True)))


def _mirrored(i: Any, extent: Extent) -> Any:
    """Index folded back at both ends, the end elements repeated."""
    period = tirx.max(ex.prim(extent) * tirx.const(2, "int64"), tirx.const(1, "int64"))
    folded = tirx.floormod(i, period)
    return tirx.min(folded, period - tirx.const(1, "int64") - folded)


def grid_sample(
    b: Builder, x: Value, grid: Value, interpolation: Interpolation, edge: Edge, corners: bool
) -> Value:
    """x [N, C, *spatial] at grid [N, *out, r] of coordinates in [-1, 1], the last spatial axis
    first, to [N, C, *out].
    """
    rank = len(x.shape) - 2
    b.same(
        grid.shape[-1], rank, f"the grid has {grid.shape[-1]} coordinates, the image {rank} axes"
    )
    batch = b.same(x.shape[0], grid.shape[0], "the grid and the image differ in batch")
    if edge is not Edge.ZEROS:
        for extent in x.shape[2:]:
            b.require(ex.greater(extent, 0), "an empty image has no border")
    dtype = wide(grid.dtype)
    nearest = interpolation is Interpolation.NEAREST
    source = x if nearest else ew.cast(b, x, wide(x.dtype))
    sampler = Sampler(x.shape[2:], dtype, interpolation, edge, corners)
    shape = [batch, x.shape[1], *grid.shape[1:-1]]

    def compute(data: te.Tensor, points: te.Tensor) -> te.Tensor:
        def element(n: Any, c: Any, *out: Any) -> Any:
            positions = [
                sampler.position(axis, points(n, *out, tirx.const(rank - 1 - axis, "int64")))
                for axis in range(rank)
            ]
            return sampler.read(
                _reader(data, n, c, source.dtype if nearest else dtype),
                positions,
                tirx.const(0, source.dtype if nearest else dtype),
            )

        return te.compute(
            [ex.prim(extent) for extent in shape],
            lambda *i: element(*i).astype(source.dtype),
            name="grid_sample",
        )

    return ew.cast(b, b.te(compute, source, ew.cast(b, grid, dtype), name="grid_sample"), x.dtype)


def _reader(data: te.Tensor, n: Any, c: Any, dtype: str) -> Callable[..., Any]:
    return lambda *i: data(n, c, *i).astype(dtype)


def deform_conv(
    b: Builder,
    x: Value,
    weight: Value,
    offset: Value,
    bias: Value | None,
    mask: Value | None,
    window: Window,
    groups: int,
    offset_groups: int,
) -> Value:
    """Convolution whose taps are moved by `offset` [N, offset_groups * taps * r, *out].

    mask: factors of the taps, [N, offset_groups * taps, *out].
    """
    rank = window.rank
    out = _deformed(b, x, weight, offset, mask, window, groups, offset_groups)
    dtype = wide(x.dtype)
    sampler = Sampler(x.shape[2:], dtype)
    depth, per_group = weight.shape[1], ex.maximum(ex.floordiv(weight.shape[0], groups), 1)
    per_offset = ex.maximum(ex.floordiv(x.shape[1], offset_groups), 1)
    shape = [x.shape[0], weight.shape[0], *out]

    def compute(data: te.Tensor, w: te.Tensor, moves: te.Tensor, *masks: te.Tensor) -> te.Tensor:
        taps = window.taps()
        k = te.reduce_axis((tirx.const(0, "int64"), ex.prim(depth)), name="c")

        def element(n: Any, o: Any, *index: Any) -> Any:
            channel = tirx.floordiv(o, ex.prim(per_group)) * ex.prim(depth) + k
            flat = tirx.floordiv(channel, ex.prim(per_offset))
            for tap, extent in zip(taps, window.kernel, strict=True):
                flat = flat * ex.prim(extent) + tap
            positions = [
                position.astype(dtype)
                + moves(n, flat * tirx.const(rank, "int64") + tirx.const(axis, "int64"), *index)
                for axis, position in enumerate(window.under(index, taps))
            ]
            value = sampler.read(
                lambda *i: data(n, channel, *i), positions, tirx.const(0, dtype)
            ) * w(o, k, *taps)
            return te.sum(value * masks[0](n, flat, *index) if masks else value, axis=[k, *taps])

        return te.compute([ex.prim(extent) for extent in shape], element, name="deform_conv")

    inputs = [ew.cast(b, value, dtype) for value in (x, weight, offset, mask) if value is not None]
    result = b.te(compute, *inputs, name="deform_conv")
    return add_bias(b, ew.cast(b, result, x.dtype), bias)


def _deformed(
    b: Builder,
    x: Value,
    weight: Value,
    offset: Value,
    mask: Value | None,
    window: Window,
    groups: int,
    offset_groups: int,
) -> list[Extent]:
    """Spatial extents of the result, all shapes being checked against each other."""
    message = "offset's shape does not follow from the input"
    out = [
        b.same(a, e, message)
        for a, e in zip(window.out(b, x.shape[2:]), offset.shape[2:], strict=True)
    ]
    moved = b.facts.simplify(ex.mul(ex.prod(window.kernel), offset_groups))
    b.same(
        x.shape[1],
        b.facts.simplify(ex.mul(weight.shape[1], groups)),
        "the input's channels are not what the weight wants",
    )
    b.same(
        offset.shape[1],
        b.facts.simplify(ex.mul(moved, window.rank)),
        "offset has the wrong number of channels",
    )
    if mask is not None:
        b.same(mask.shape[1], moved, "mask has the wrong number of channels")
    return out


def affine_grid(b: Builder, theta: Value, spatial: Sequence[Extent], corners: bool) -> Value:
    """theta [N, r, r + 1] applied to the coordinates in [-1, 1] of an image's elements, to [N,
    *spatial, r] for `grid_sample`.
    """
    rank = len(spatial)
    b.same(theta.shape[1], rank, f"theta maps to {theta.shape[1]} axes, the size has {rank}")
    b.same(theta.shape[2], rank + 1, f"theta has {theta.shape[2]} columns, {rank + 1} are needed")
    dtype = wide(theta.dtype)
    shape = b.extents([theta.shape[0], *spatial, rank], "grid")

    def coordinate(axis: int, i: Any) -> Any:
        extent, one, two = (
            ex.prim(shape[1 + axis], dtype),
            tirx.const(1, dtype),
            tirx.const(2, dtype),
        )
        if not corners:
            return (i.astype(dtype) * two + one) / extent - one
        spread = i.astype(dtype) * two / tirx.max(extent - one, one) - one
        return tirx.Select(extent > one, spread, tirx.const(0, dtype))

    def compute(matrix: te.Tensor) -> te.Tensor:
        def element(n: Any, *index: Any) -> Any:
            *position, row = index
            total = matrix(n, row, tirx.const(rank, "int64"))
            for axis, i in enumerate(position):
                total = total + matrix(n, row, tirx.const(rank - 1 - axis, "int64")) * coordinate(
                    axis, i
                )
            return total

        return te.compute([ex.prim(extent) for extent in shape], element, name="affine_grid")

    return ew.cast(b, b.te(compute, ew.cast(b, theta, dtype), name="affine_grid"), theta.dtype)

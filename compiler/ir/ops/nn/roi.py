"""Pooling of regions of interest."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tvm import te, tirx

from compiler.ir.graph.builder import Builder
from compiler.ir.graph.indices import position_near
from compiler.ir.graph.values import Value
from compiler.ir.ops.nn.norm import constant, wide
from compiler.ir.ops.pointwise import elementwise as ew
from compiler.ir.ops.shape import indexing, layout
from compiler.ir.shapes import extents as ex
from compiler.ir.shapes.extents import Extent

_SAMPLES = 1 << 20
"""The most samples of a bin where the regions decide: those of 1,024 by 1,024 elements."""


@dataclass(frozen=True)
class RoiAlign:
    """`size` of the result, image elements to a unit of the regions, samples a bin (0: as many as
    it has elements).

    aligned: positions are those of element centres, and regions may be smaller than one element.
    maximum: the greatest weighted neighbour instead of the mean of the samples.
    """

    size: tuple[int, int]
    scale: float
    samples: int
    aligned: bool
    maximum: bool

    def start(self, roi: Any, axis: int) -> Any:
        """First edge of the region on the axis (0 height, 1 width), on the image."""
        return roi(1 - axis) - self._offset(roi)

    def _offset(self, roi: Any) -> Any:
        return tirx.const(0.5 if self.aligned else 0, roi(0).ty.dtype)

    def length(self, roi: Any, axis: int) -> Any:
        """Extent of the region on the axis."""
        extent = roi(3 - axis) - roi(1 - axis)
        return extent if self.aligned else tirx.max(extent, tirx.const(1, extent.ty.dtype))

    def count(self, roi: Any, axis: int) -> Any:
        """Samples a bin on the axis, int64."""
        if self.samples > 0:
            return tirx.const(self.samples, "int64")
        length = self.length(roi, axis)
        return tirx.ceil(length / tirx.const(self.size[axis], length.ty.dtype)).astype("int64")


def roi_align(b: Builder, x: Value, rois: Value, batch: Value, spec: RoiAlign) -> Value:
    """x [N, C, H, W] in regions [R, 4] (x1, y1, x2, y2) of the images `batch` [R], sampled
    bilinearly to [R, C, *size].
    """
    for extent in x.shape[2:]:
        b.require(ex.greater(extent, 0), "an empty image has no regions")
    count = b.same(rois.shape[0], batch.shape[0], "there are not as many regions as batch indices")
    b.same(rois.shape[1], 4, "a region is of four numbers")
    images = indexing.check(b, batch, x.shape[0], "a batch index")
    dtype = wide(x.dtype)
    data, regions = ew.cast(b, x, dtype), ew.cast(b, rois, dtype)
    scaled = ew.multiply(b, regions, constant(spec.scale, dtype))
    bounds = _bounds(b, scaled, count, spec)
    zero = tirx.const(0, "int64")

    def compute(image: te.Tensor, roi: te.Tensor, entry: te.Tensor) -> te.Tensor:
        steps = [
            te.reduce_axis((zero, ex.prim(bound)), name=name)
            for bound, name in zip(bounds, ("sy", "sx"), strict=True)
        ]

        def element(r: Any, c: Any, *bin_: Any) -> Any:
            corner = _row(roi, r)
            counts = [spec.count(corner, axis) for axis in (0, 1)]
            positions = [
                _sample_position(spec, corner, axis, bin_[axis], steps[axis], counts[axis])
                for axis in (0, 1)
            ]
            used = tirx.all(*(step < limit for step, limit in zip(steps, counts, strict=True)))
            n = images.address(entry(r))
            terms = _neighbours(positions, x.shape[2:], lambda *i: image(n, c, *i))
            inside = tirx.all(used, *_near(positions, x.shape[2:]))
            if spec.maximum:
                return _greatest(terms, used, inside, steps, dtype)
            total = terms[0] + terms[1] + terms[2] + terms[3]
            share = tirx.max(counts[0] * counts[1], tirx.const(1, "int64")).astype(dtype)
            return te.sum(
                tirx.if_then_else(inside, total / share, tirx.const(0, dtype)), axis=steps
            )

        return te.compute(
            [ex.prim(e) for e in (count, x.shape[1], *spec.size)], element, name="roi_align"
        )

    result = b.te(compute, data, scaled, batch, name="roi_align")
    return ew.cast(b, _without_lowest(b, result) if spec.maximum else result, x.dtype)


def _row(matrix: te.Tensor, row: Any) -> Callable[[int], Any]:
    """Reads a row's elements by number."""
    return lambda column: matrix(row, tirx.const(column, "int64"))


def _bounds(b: Builder, rois: Value, count: Extent, spec: RoiAlign) -> list[Extent]:
    """The most samples that a bin of any region has on each axis."""
    if spec.samples > 0:
        return [spec.samples, spec.samples]

    def compute(roi: te.Tensor) -> te.Tensor:
        r = te.reduce_axis((tirx.const(0, "int64"), ex.prim(count)), name="r")
        most = te.comm_reducer(
            lambda p, q: tirx.max(p, q), lambda _: tirx.const(0, "int64"), name="most"
        )
        corner = _row(roi, r)
        high = spec.count(corner, 0)
        wide_ = spec.count(corner, 1)
        return te.compute(
            [tirx.const(2, "int64")],
            lambda axis: most(
                tirx.Select(tirx.EQ(axis, tirx.const(0, "int64")), high, wide_), axis=r
            ),
            name="samples",
        )

    most = b.known_extents(b.te(compute, rois, name="samples"), "samples")
    counts: list[Extent] = most.scalars()
    few = ex.both(*(ex.less_equal(count, _SAMPLES) for count in counts))
    b.require(few, f"a bin of a region has more than {_SAMPLES} samples along an axis")
    message = f"a bin of a region has more than {_SAMPLES} samples"
    b.require(ex.less_equal(ex.mul(*counts), _SAMPLES), message)
    return counts


def _sample_position(
    spec: RoiAlign, corner: Any, axis: int, bin_: Any, step: Any, count: Any
) -> Any:
    """The sample's position on the axis."""
    dtype = corner(0).ty.dtype
    size = spec.length(corner, axis) / tirx.const(spec.size[axis], dtype)
    fraction = (
        (step.astype(dtype) + tirx.const(0.5, dtype))
        * size
        / tirx.max(count, tirx.const(1, "int64")).astype(dtype)
    )
    return spec.start(corner, axis) + bin_.astype(dtype) * size + fraction


def _near(positions: Sequence[Any], extents: Sequence[Extent]) -> list[Any]:
    """Conditions that a sample is on the image or within one element of it."""
    conditions = []
    for position, extent in zip(positions, extents, strict=True):
        conditions += [
            position >= tirx.const(-1, position.ty.dtype),
            position <= ex.prim(extent, position.ty.dtype),
        ]
    return conditions


def _neighbours(positions: Sequence[Any], extents: Sequence[Extent], read: Any) -> list[Any]:
    """The four elements around a sample times their bilinear weights."""
    axes = []
    for position, extent in zip(positions, extents, strict=True):
        dtype, last = position.ty.dtype, ex.prim(extent) - tirx.const(1, "int64")
        inside = tirx.max(tirx.min(position, last.astype(dtype)), tirx.const(0, dtype))
        low = position_near(position, extent)
        fraction = inside - tirx.floor(inside)
        axes.append(
            [
                (low, tirx.const(1, dtype) - fraction),
                (tirx.min(low + tirx.const(1, "int64"), last), fraction),
            ]
        )
    return [wy * wx * read(y, x) for y, wy in axes[0] for x, wx in axes[1]]


def _greatest(
    terms: Sequence[Any], used: Any, inside: Any, steps: Sequence[Any], dtype: str
) -> Any:
    best = tirx.max(tirx.max(terms[0], terms[1]), tirx.max(terms[2], terms[3]))
    lowest = tirx.min_value(dtype)
    reducer = te.comm_reducer(lambda p, q: tirx.max(p, q), tirx.min_value, name="max")
    seen = tirx.if_then_else(inside, best, tirx.const(0, dtype))
    return reducer(tirx.if_then_else(used, seen, lowest), axis=list(steps))


def _without_lowest(b: Builder, x: Value) -> Value:
    """Zero where a bin had no sample at all."""
    lowest = tirx.min_value(x.dtype)
    return b.te(
        lambda p: te.compute(
            p.shape,
            lambda *i: tirx.Select(p(*i) > lowest, p(*i), tirx.const(0, x.dtype)),
            name="filled",
        ),
        x,
        name="filled",
    )


def max_roi_pool(b: Builder, x: Value, rois: Value, size: tuple[int, int], scale: float) -> Value:
    """The greatest element of each bin of regions [R, 5] (image, x1, y1, x2, y2, edges rounded and
    included), zero for an empty bin.
    """
    b.same(rois.shape[1], 5, "a region is of five numbers")
    column = layout.strided_slice(b, rois, 1, 0, 1, 1)
    entries = ew.cast(b, layout.reshape(b, column, [rois.shape[0]]), "int64")
    images = indexing.check(b, entries, x.shape[0], "a batch index")
    dtype = wide(x.dtype)
    zero = tirx.const(0, "int64")
    lowest = tirx.min_value(dtype)

    def compute(image: te.Tensor, roi: te.Tensor, entry: te.Tensor) -> te.Tensor:
        taps = [
            te.reduce_axis((zero, ex.prim(extent)), name=name)
            for extent, name in zip(x.shape[2:], ("y", "x"), strict=True)
        ]
        reducer = te.comm_reducer(lambda p, q: tirx.max(p, q), tirx.min_value, name="max")

        def element(r: Any, c: Any, *bin_: Any) -> Any:
            inside = []
            for axis in (0, 1):
                first, last = (
                    _round_away(roi(r, tirx.const(i, "int64")) * tirx.const(scale, dtype))
                    for i in (2 - axis, 4 - axis)
                )
                share = tirx.max(
                    last - first + tirx.const(1, "int64"), tirx.const(1, "int64")
                ).astype(dtype) / tirx.const(size[axis], dtype)
                start = tirx.floor(bin_[axis].astype(dtype) * share).astype("int64") + first
                stop = (
                    tirx.ceil((bin_[axis] + tirx.const(1, "int64")).astype(dtype) * share).astype(
                        "int64"
                    )
                    + first
                )
                inside += [taps[axis] >= start, taps[axis] < stop]
            return reducer(
                tirx.if_then_else(
                    tirx.all(*inside), image(images.address(entry(r)), c, *taps), lowest
                ),
                axis=taps,
            )

        return te.compute(
            [ex.prim(e) for e in (rois.shape[0], x.shape[1], *size)], element, name="max_roi_pool"
        )

    result = b.te(
        compute, ew.cast(b, x, dtype), ew.cast(b, rois, dtype), entries, name="max_roi_pool"
    )
    return ew.cast(b, _without_lowest(b, result), x.dtype)


def _round_away(value: Any) -> Any:
    """The nearest integer, halves away from zero."""
    half = tirx.const(0.5, value.ty.dtype)
    return tirx.Select(
        value < tirx.const(0, value.ty.dtype), tirx.ceil(value - half), tirx.floor(value + half)
    ).astype("int64")

"""Discrete Fourier transforms of any length, as matmuls with bases made from exact angles."""

from __future__ import annotations

import math
from typing import Any

from tvm import te, tirx

from compiler.ir.graph.builder import Builder
from compiler.ir.graph.values import Value
from compiler.ir.ops.math import linear
from compiler.ir.ops.math.scan import around
from compiler.ir.ops.pointwise import elementwise as ew
from compiler.ir.ops.pointwise import programs
from compiler.ir.ops.shape import layout
from compiler.ir.ops.shape.axes import normalize_axes
from compiler.ir.shapes import extents as ex
from compiler.ir.shapes.extents import Extent

Complex = tuple[Value, Value | None]
"""Real and imaginary part, None where that is zero."""


def part(b: Builder, x: Value, imaginary: bool) -> Value | None:
    """The real or imaginary part of a tensor whose last axis holds one (real) or two; zeros where
    only run time knows which.
    """
    width, last = x.shape[-1], len(x.shape) - 1
    shape = x.shape[:-1]
    if not imaginary or isinstance(width, int):
        if imaginary and width == 1:
            return None
        component = 1 if imaginary else 0
        return layout.reshape(
            b, layout.strided_slice(b, x, last, component, component + 1, 1), shape
        )
    zero = tirx.const(0, x.dtype)

    def compute(data: te.Tensor) -> te.Tensor:
        component = ex.prim(ex.sub(width, 1))
        has_imaginary = tirx.GT(ex.prim(width), ex.prim(1))
        return te.compute(
            [ex.prim(e) for e in shape],
            lambda *i: tirx.if_then_else(has_imaginary, data(*i, component), zero),
            name="imaginary",
        )

    return b.te(compute, x, name="imaginary")


def basis(
    b: Builder, rows: Extent, columns: Extent, length: Extent, function: Any, dtype: str
) -> Value:
    """function(2 pi r c / length) for a row r and a column c, the product taken modulo the length
    so that no precision is lost.
    """

    def element(r: Any, c: Any) -> Any:
        turn = tirx.floormod(r * c, tirx.max(ex.prim(length), ex.prim(1)))
        angle = (
            turn.astype("float64")
            * tirx.const(2 * math.pi, "float64")
            / ex.prim(length).astype("float64")
        )
        return function(angle).astype(dtype)

    return b.te(
        lambda: te.compute([ex.prim(rows), ex.prim(columns)], element, name="basis"), name="basis"
    )


def transform(
    b: Builder, x: Complex, length: Extent, bins: Extent, inverse: bool
) -> tuple[Value, Value]:
    """Bins 0 to `bins` of the transform of the last axis, cut or padded with zeros to `length`; the
    inverse divides by it.
    """
    real, imaginary = x
    rows = _within(b, real.shape[-1], length)
    real, imaginary = _head(b, real, rows), None if imaginary is None else _head(b, imaginary, rows)
    cosine, sine = (basis(b, rows, bins, length, f, real.dtype) for f in (tirx.cos, tirx.sin))
    out_real, out_imaginary = linear.matmul(b, real, cosine), linear.matmul(b, real, sine)
    if imaginary is not None:
        cross, straight = linear.matmul(b, imaginary, sine), linear.matmul(b, imaginary, cosine)
        if inverse:
            out_real, out_imaginary = (
                ew.subtract(b, out_real, cross),
                ew.add(b, out_imaginary, straight),
            )
        else:
            out_real, out_imaginary = (
                ew.add(b, out_real, cross),
                ew.subtract(b, straight, out_imaginary),
            )
    elif not inverse:
        out_imaginary = programs.pointwise(b, lambda item: -item, out_imaginary, name="negated")
    return (
        (_scaled(b, out_real, length), _scaled(b, out_imaginary, length))
        if inverse
        else (out_real, out_imaginary)
    )


def real_inverse(b: Builder, x: Complex, length: Extent) -> Value:
    """The real signal whose transform has the bins of x, in the last axis, as its first half."""
    real, imaginary = x
    half = b.facts.simplify(ex.add(ex.floordiv(length, 2), 1))
    rows = _within(b, real.shape[-1], half)
    cosine = linear.matmul(
        b,
        _doubled(b, _head(b, real, rows), length),
        basis(b, rows, length, length, tirx.cos, real.dtype),
    )
    if imaginary is None:
        return _scaled(b, cosine, length)
    sine = linear.matmul(
        b,
        _doubled(b, _head(b, imaginary, rows), length),
        basis(b, rows, length, length, tirx.sin, real.dtype),
    )
    return _scaled(b, ew.subtract(b, cosine, sine), length)


def _within(b: Builder, extent: Extent, limit: Extent) -> Extent:
    return b.extents([ex.minimum(extent, limit)], "part")[0]


def _head(b: Builder, x: Value, count: Extent) -> Value:
    return layout.strided_slice(b, x, len(x.shape) - 1, 0, count, 1)


def _doubled(b: Builder, x: Value, length: Extent) -> Value:
    """Every bin twice, but those that are their own mirror image."""

    def compute(data: te.Tensor) -> te.Tensor:
        def element(*i: Any) -> Any:
            own = tirx.Or(tirx.EQ(i[-1], ex.prim(0)), tirx.EQ(i[-1] * 2, ex.prim(length)))
            return tirx.Select(own, data(*i), data(*i) * tirx.const(2, x.dtype))

        return te.compute(data.shape, element, name="doubled")

    return b.te(compute, x, name="doubled")


def _scaled(b: Builder, x: Value, length: Extent) -> Value:
    return programs.pointwise(
        b, lambda item: item / ex.prim(length).astype(x.dtype), x, name="scaled"
    )


def join_parts(b: Builder, real: Value, imaginary: Value) -> Value:
    """Both parts in a new last axis of two."""
    rank = len(real.shape)
    return layout.concat(
        b, [layout.unsqueeze(b, value, [rank]) for value in (real, imaginary)], rank
    )


def dft(
    b: Builder, x: Value, length: Extent | None, axis: Extent, inverse: bool, onesided: bool
) -> Value:
    """The transform along an axis of a tensor whose last axis holds real and imaginary parts; the
    axis may be known at run time.

    onesided: of a real signal only the first half; with `inverse`, from such a half to the real
    signal.
    """
    (position,) = normalize_axes(b, [axis], len(x.shape))
    if length is not None:
        b.require(ex.greater_equal(length, 1), "DFT: dft_length must be positive")
    work = "float32" if x.dtype in programs.HALF_PRECISION else x.dtype
    outer, count, inner = around(b, x.shape[:-1], position)
    view = layout.reshape(b, ew.cast(b, x, work), [outer, count, inner, x.shape[-1]])
    moved = layout.transpose(b, view, [0, 2, 1, 3])
    real, imaginary = part(b, moved, False), part(b, moved, True)
    assert real is not None
    if onesided and inverse:
        size = ex.mul(ex.sub(count, 1), 2) if length is None else length
        result = layout.unsqueeze(
            b, real_inverse(b, (real, imaginary), b.facts.simplify(size)), [3]
        )
    else:
        size = count if length is None else length
        bins = b.facts.simplify(ex.add(ex.floordiv(size, 2), 1)) if onesided else size
        result = join_parts(b, *transform(b, (real, imaginary), size, bins, inverse))
    back = layout.transpose(b, result, [0, 2, 1, 3])
    return ew.cast(b, layout.reshape(b, back, _restored(b, x.shape, position, back.shape)), x.dtype)


def _restored(
    b: Builder, shape: tuple[Extent, ...], position: Extent, view: tuple[Extent, ...]
) -> tuple[Extent, ...]:
    others = [
        ex.select(ex.equal(d, position), view[1], extent) for d, extent in enumerate(shape[:-1])
    ]
    return b.extents([*others, view[3]], "spectrum")


def stft(
    b: Builder, signal: Value, step: Extent, window: Value | None, length: Extent, onesided: bool
) -> Value:
    """Transforms of frames of `length` every `step` samples: [batch, frames, bins, 2] of a signal
    [batch, samples, 1 or 2].
    """
    batch, samples = signal.shape[0], signal.shape[1]
    b.require(ex.greater_equal(step, 1), "STFT: frame_step must be positive")
    b.require(ex.greater_equal(length, 1), "STFT: frame_length must be positive")
    b.require(ex.less_equal(length, samples), "STFT: a frame is longer than the signal")
    # Extents are computed before what a run checks, so that a step of 0 must not divide.
    apart = ex.maximum(step, 1)
    frames: Extent = ex.add(ex.floordiv(ex.sub(samples, length), apart), 1)
    # FuseTIR refuses a shape that divides by a dim.
    frames = b.facts.simplify(frames) if isinstance(step, int) else b.symbol(frames, "frames")
    work = "float32" if signal.dtype in programs.HALF_PRECISION else signal.dtype
    wide = ew.cast(b, signal, work)
    parts = [value for value in (part(b, wide, False), part(b, wide, True)) if value is not None]

    def framed(value: Value) -> Value:
        def compute(data: te.Tensor) -> te.Tensor:
            shape = [ex.prim(e) for e in (batch, frames, length)]
            return te.compute(shape, lambda n, f, i: data(n, f * ex.prim(step) + i), name="frames")

        cut = b.te(compute, value, name="frames")
        return cut if window is None else ew.multiply(b, cut, ew.cast(b, window, work))

    cuts = [framed(value) for value in parts]
    bins = b.facts.simplify(ex.add(ex.floordiv(length, 2), 1)) if onesided else length
    result = transform(b, (cuts[0], cuts[1] if len(cuts) > 1 else None), length, bins, False)
    return ew.cast(b, join_parts(b, *result), signal.dtype)

"""Fourier transforms of real signals, and what may be done with their complex results."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from tvm import tirx

from compiler.ir.aten.memory import Ref
from compiler.ir.aten.node import Node, Spectrum
from compiler.ir.aten.operands import scalar, to_float
from compiler.ir.aten.operators.arithmetic import angle_of
from compiler.ir.aten.operators.joining import pad_axes
from compiler.ir.aten.registry import op, plain
from compiler.ir.graph.builder import Builder
from compiler.ir.graph.values import Known, Value
from compiler.ir.ops.math import fourier, windows
from compiler.ir.ops.nn import norm as nn_norm
from compiler.ir.ops.nn import pad
from compiler.ir.ops.pointwise import elementwise as ew
from compiler.ir.ops.pointwise import programs as pw
from compiler.ir.ops.shape import layout
from compiler.ir.shapes import extents as ex
from compiler.ir.shapes.extents import Extent


def _spectrum(node: Node) -> Spectrum:
    spectrum = node.get("self")
    if not isinstance(spectrum, Spectrum):
        node.fail(
            "this is supported for the complex results of transforms only",
            reason="unsupported_form",
        )
    return spectrum


@op("angle")
def angle(b: Builder, node: Node) -> Value:
    """The angle of each element, of a real one pi below zero."""
    if isinstance(node.get("self"), Ref):
        x = to_float(b, node.value("self"))
        return pw.in_float(b, _real_angle, x, name="angle")
    spectrum = _spectrum(node)
    return angle_of(b, spectrum.imaginary, spectrum.real)


def _real_angle(v: Any) -> Any:
    positive = tirx.Select(v < pw.like(v, 0), pw.like(v, math.pi), pw.like(v, 0))
    return tirx.Select(tirx.isnan(v), v, positive)


@op("real")
def real(b: Builder, node: Node) -> Any:
    """The real part; a real tensor is its own."""
    operand = node.get("self")
    return operand.real if isinstance(operand, Spectrum) else operand


@op("imag")
def imaginary(b: Builder, node: Node) -> Value:
    """The imaginary part."""
    return _spectrum(node).imaginary


@op("view_as_real")
def view_as_real(b: Builder, node: Node) -> Value:
    """Both parts in a new last axis."""
    spectrum = _spectrum(node)
    return fourier.join_parts(b, spectrum.real, spectrum.imaginary)


@op("stft")
def stft(b: Builder, node: Node) -> Any:
    """Transforms of windows of a signal [batch, samples]: [batch, bins, windows]."""
    x, length = node.value("self"), node.int("n_fft")
    single = len(x.shape) == 1
    if node.get("align_to_window", None) or node.get("onesided", None) is False:
        node.fail(
            "stft is supported one-sided and not aligned to its window only",
            reason="unsupported_form",
        )
    if single:
        x = layout.unsqueeze(b, x, [0])
    if node.bool("center", False):
        mode = {"reflect": pad.PadMode.REFLECT, "constant": pad.PadMode.CONSTANT}.get(
            node.text("pad_mode")
        )
        if mode is None:
            node.fail(
                f"stft with {node.text('pad_mode')} padding is not supported",
                reason="unsupported_form",
            )
        x = pad_axes(b, x, [length // 2, length // 2], mode, scalar(b, 0, x.dtype))
    step = node.int("hop_length") if node.has("hop_length") else length // 4
    frames = fourier.stft(
        b, layout.unsqueeze(b, x, [2]), step, _window(b, node, length, x.dtype), length, True
    )
    factor = 1 / math.sqrt(length) if node.bool("normalized") else 1.0
    parts = [_part(b, frames, component, factor, single) for component in (0, 1)]
    return Spectrum(*parts) if node.bool("return_complex", False) else fourier.join_parts(b, *parts)


def _part(b: Builder, frames: Value, component: int, factor: float, single: bool) -> Value:
    """[batch, windows, bins, 2] to one part with its axes as torch has them."""
    part = layout.select(b, frames, 3, component)
    turned = layout.transpose(b, part, [0, 2, 1])
    scaled = turned if factor == 1 else ew.multiply(b, turned, scalar(b, factor, turned.dtype))
    return layout.squeeze(b, scaled, [0]) if single else scaled


def _window(b: Builder, node: Node, length: int, dtype: str) -> Value | None:
    """The window in the middle of a frame; None where all of the frame counts alike."""
    declared = node.optional("window")
    width = node.int("win_length") if node.has("win_length") else length
    if declared is None and width == length:
        return None
    window = Known(np.ones(width, np.dtype(dtype)), dtype) if declared is None else declared
    before = (length - width) // 2
    return pad_axes(
        b,
        window,
        [before, length - width - before],
        pad.PadMode.CONSTANT,
        scalar(b, 0, window.dtype),
    )


UNCHANGED = -1
"""torch's size of an axis that is neither cut nor padded."""


@op("fft_fft", "fft_ifft", "fft_fft2", "fft_ifft2", "fft_fftn", "fft_ifftn")
def fft(b: Builder, node: Node) -> Spectrum:
    """The transform of a real or complex tensor along axes, each cut or padded to its size."""
    operand, inverse = node.get("self"), "fft_i" in node.kind
    parts: fourier.Complex = (
        (operand.real, operand.imaginary)
        if isinstance(operand, Spectrum)
        else (to_float(b, node.value("self")), None)
    )
    for axis, size in _axes_to_transform(node, len(parts[0].shape)):
        length = parts[0].shape[axis] if size == UNCHANGED else size
        parts = _transform_axis(b, node, parts, axis, length, inverse)
    assert parts[1] is not None
    return Spectrum(parts[0], parts[1])


def _axes_to_transform(node: Node, rank: int) -> list[tuple[int, Extent]]:
    """Each axis with the size that the call gives it, or UNCHANGED."""
    if node.kind in ("aten::fft_fft", "aten::fft_ifft"):
        return [(node.axis("dim", rank, -1), node.size("n") if node.has("n") else UNCHANGED)]
    sizes = node.sizes("s") if node.has("s") else None
    if node.has("dim"):
        axes = [node.as_axis(axis, rank) for axis in node.ints("dim")]
    else:
        axes = list(range(0 if sizes is None else max(rank - len(sizes), 0), rank))
    lengths = [UNCHANGED] * len(axes) if sizes is None else sizes
    if not axes or len(set(axes)) < len(axes) or len(lengths) != len(axes):
        node.fail("it transforms no axis, or one twice", reason="unsupported_form")
    return list(zip(axes, lengths, strict=True))


def _transform_axis(
    b: Builder, node: Node, parts: fourier.Complex, axis: int, length: Extent, inverse: bool
) -> fourier.Complex:
    rank = len(parts[0].shape)
    forth = [*(index for index in range(rank) if index != axis), axis]
    back = [forth.index(index) for index in range(rank)]
    real_part = layout.transpose(b, parts[0], forth)
    other = None if parts[1] is None else layout.transpose(b, parts[1], forth)
    real_part, other = (
        layout.transpose(b, _normed(b, node, part, length, inverse), back)
        for part in fourier.transform(b, (real_part, other), length, length, inverse)
    )
    return real_part, other


@op("fft_rfft")
def rfft(b: Builder, node: Node) -> Spectrum:
    """The first half of the transform of a real signal along an axis, cut or padded to n."""
    x, back = _last(b, node, to_float(b, node.value("self")))
    length = node.size("n") if node.has("n") else x.shape[-1]
    bins = b.facts.simplify(ex.add(ex.floordiv(length, 2), 1))
    parts = fourier.transform(b, (x, None), length, bins, False)
    return Spectrum(
        *(layout.transpose(b, _normed(b, node, part, length, False), back) for part in parts)
    )


@op("fft_irfft")
def irfft(b: Builder, node: Node) -> Value:
    """The real signal of n elements whose transform's first half this is."""
    x = _spectrum(node)
    (real_part, back), (other, _) = (_last(b, node, part) for part in (x.real, x.imaginary))
    natural = ex.mul(ex.sub(real_part.shape[-1], 1), 2)
    length = node.size("n") if node.has("n") else b.facts.simplify(natural)
    return layout.transpose(
        b, _normed(b, node, fourier.real_inverse(b, (real_part, other), length), length, True), back
    )


def _last(b: Builder, node: Node, x: Value) -> tuple[Value, list[int]]:
    """The transformed axis made the last one, and the order that brings it back."""
    rank = len(x.shape)
    axis = node.axis("dim", rank, -1)
    forth = [*(index for index in range(rank) if index != axis), axis]
    return layout.transpose(b, x, forth), [forth.index(index) for index in range(rank)]


def _normed(b: Builder, node: Node, x: Value, length: Extent, inverse: bool) -> Value:
    """Scaled as `norm` asks: the inverse is divided by the length unless told otherwise."""
    norm = node.get("norm", None) or "backward"
    if norm == "backward":
        return x
    size = ew.cast(b, Known.of(length), x.dtype)
    factor = nn_norm.sqrt(b, b.tensor(size)) if norm == "ortho" else size
    return ew.multiply(b, x, factor) if inverse else ew.divide(b, x, factor)


_COSINES: dict[str, Sequence[float]] = {
    "hann": (0.5, 0.5),
    "hamming": (0.54, 0.46),
    "blackman": (0.42, 0.5, 0.08),
}


@plain("hann_window", "hamming_window", "blackman_window")
def window(b: Builder, node: Node) -> Value:
    """A window of cosines."""
    weights = list(_COSINES[node.kind.removeprefix("aten::").removesuffix("_window")])
    for index, name in enumerate(("alpha", "beta")):
        weights[index] = node.float(name) if name in node.names else weights[index]
    size = node.size("window_length")
    if isinstance(size, int) and size <= 1:
        return Known(np.ones(size, np.float32), "float32")
    return windows.cosine_window(
        b,
        size,
        weights,
        node.bool("periodic", True),
        node.dtype("dtype", "float32"),
        lone=True,
    )

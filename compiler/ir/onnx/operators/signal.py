"""ONNX operators on signals: Fourier transforms, windows, mel filter banks."""

from collections.abc import Sequence

import numpy as np

from compiler.ir.graph.builder import Builder
from compiler.ir.graph.values import Value
from compiler.ir.onnx.model.dtypes import DTYPES
from compiler.ir.onnx.node import Node
from compiler.ir.onnx.registry import op
from compiler.ir.ops.math import fourier, windows
from compiler.ir.shapes.extents import Extent

HAMMING = 25 / 46


def _extent(node: Node, index: int, what: str) -> Extent:
    return node.known_extents(index, what, 1).scalars()[0]


@op("DFT", since=20)
def dft(b: Builder, node: Node) -> Value:
    """The transform along an axis given as an input."""
    length = _extent(node, 1, "dft_length") if node.has(1) else None
    axis = (
        node.known_integers(2, "axis", -len(node.value(0).shape), -2).scalars()[0]
        if node.has(2)
        else -2
    )
    return fourier.dft(
        b,
        node.value(0),
        length,
        axis,
        bool(node.attr("inverse", 0)),
        bool(node.attr("onesided", 0)),
    )


@op("DFT", since=17)
def dft_attribute(b: Builder, node: Node) -> Value:
    """The transform along an axis given as an attribute."""
    length = _extent(node, 1, "dft_length") if node.has(1) else None
    return fourier.dft(
        b,
        node.value(0),
        length,
        node.attr("axis", 1),
        bool(node.attr("inverse", 0)),
        bool(node.attr("onesided", 0)),
    )


@op("STFT", since=17)
def stft(b: Builder, node: Node) -> Value:
    """Transforms of successive frames; the frame's length is given, or the window's, or the
    signal's.
    """
    signal, window = node.value(0), node.optional(2)
    length = (
        _extent(node, 3, "frame_length")
        if node.has(3)
        else signal.shape[1]
        if window is None
        else window.shape[0]
    )
    return fourier.stft(
        b, signal, _extent(node, 1, "frame_step"), window, length, bool(node.attr("onesided", 1))
    )


def _window(b: Builder, node: Node, weights: Sequence[float]) -> Value:
    size = _extent(node, 0, "window")
    dtype = DTYPES.get(node.attr("output_datatype", 1))
    if dtype is None or not np.issubdtype(np.dtype(dtype), np.number):
        node.fail("the window's output_datatype is not supported", reason="dtype")
    return windows.cosine_window(b, size, weights, bool(node.attr("periodic", 1)), dtype)


@op("HannWindow", since=17)
def hann(b: Builder, node: Node) -> Value:
    """sin^2(pi n / N)."""
    return _window(b, node, (0.5, 0.5))


@op("HammingWindow", since=17)
def hamming(b: Builder, node: Node) -> Value:
    """25/46 - 21/46 cos(2 pi n / N)."""
    return _window(b, node, (HAMMING, 1 - HAMMING))


@op("BlackmanWindow", since=17)
def blackman(b: Builder, node: Node) -> Value:
    """0.42 - 0.5 cos(2 pi n / N) + 0.08 cos(4 pi n / N)."""
    return _window(b, node, (0.42, 0.5, 0.08))


@op("MelWeightMatrix", since=17)
def mel_weight_matrix(b: Builder, node: Node) -> Value:
    """Triangular filters on the mel scale."""
    bins, length, rate = (
        _extent(node, index, name)
        for index, name in enumerate(("mel_bins", "dft_length", "sample_rate"))
    )
    dtype = DTYPES.get(node.attr("output_datatype", 1))
    if dtype is None:
        node.fail("that output_datatype is not supported", reason="dtype")
    return windows.mel_weights(b, bins, length, rate, node.value(3), node.value(4), dtype)

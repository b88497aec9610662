"""Pooling by numpy for onnx's evaluator, whose own operators leave dilations, SAME_LOWER and the
channels of indices out in some forms.

Written from the operators' documentation, for any number of spatial axes.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
from onnx.reference.op_run import OpRun

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Axis:
    """One spatial axis of a pooling: extents of input and output, padding before and after, and the
    window's kernel, stride and dilation.
    """

    extent: int
    out: int
    before: int
    after: int
    kernel: int
    stride: int
    dilation: int

    def positions(self, tap: int) -> Array:
        """The position in the input that a tap of the window reads, for each output."""
        return np.arange(self.out) * self.stride - self.before + tap * self.dilation


@dataclass(frozen=True)
class Tap:
    """One element of all windows: the values [N, C, *out], zero outside of the input; whether it
    lies inside of it, and of its padding, too; its position in the flattened spatial axes. The
    latter three are [*out].
    """

    values: Array
    inside: Array
    padded: Array
    positions: tuple[Array, ...]


def axes_of(shape: tuple[int, ...], attributes: Mapping[str, Any]) -> list[Axis]:
    """The spatial axes of a pooling with these attributes over an input [N, C, *spatial]."""
    rank = len(shape) - 2
    ones = [1] * rank
    strides, dilations = attributes.get("strides") or ones, attributes.get("dilations") or ones
    pads = attributes.get("pads") or [0] * (2 * rank)
    mode, ceil = attributes.get("auto_pad") or "NOTSET", bool(attributes.get("ceil_mode"))
    result = []
    for i, (extent, kernel) in enumerate(zip(shape[2:], attributes["kernel_shape"], strict=True)):
        stride, reach = strides[i], (kernel - 1) * dilations[i] + 1
        before, after = (pads[i], pads[rank + i]) if mode == "NOTSET" else (0, 0)
        if mode in ("SAME_UPPER", "SAME_LOWER"):
            out = -(-extent // stride)
            total = max((out - 1) * stride + reach - extent, 0)
            before = total // 2 if mode == "SAME_UPPER" else total - total // 2
            after = total - before
        else:
            room = extent + before + after - reach
            # So do ONNX's shape inference and ONNX Runtime, also for VALID, of which the text says
            # otherwise.
            out = (-(-room // stride) if ceil else room // stride) + 1
            # A window that begins in the padding behind the input is left out.
            out -= ceil and (out - 1) * stride >= extent + before
        result.append(Axis(extent, out, before, after, kernel, stride, dilations[i]))
    return result


def taps(x: Array, axes: list[Axis]) -> Iterator[Tap]:
    """Every element of the windows, in the order of the kernel's axes."""
    for offsets in product(*(range(axis.kernel) for axis in axes)):
        positions = np.meshgrid(
            *(axis.positions(tap) for axis, tap in zip(axes, offsets, strict=True)), indexing="ij"
        )
        inside, padded = np.ones((2, *positions[0].shape), bool)
        clipped = []
        for axis, read in zip(axes, positions, strict=True):
            inside &= (read >= 0) & (read < axis.extent)
            padded &= (read >= -axis.before) & (read < axis.extent + axis.after)
            clipped.append(read.clip(0, max(axis.extent - 1, 0)))
        index: tuple[Any, ...] = (slice(None), slice(None), *clipped)
        values = np.where(inside, x[index], 0)
        yield Tap(values, inside, padded, tuple(clipped))


class MaxPool(OpRun):  # type: ignore[misc]
    """The greatest element of each window and, where wanted, its position in the whole input."""

    op_domain = ""

    def _run(self, x: Array, **attributes: Any) -> tuple[Array, ...]:
        axes = axes_of(x.shape, attributes)
        lowest = -np.inf if x.dtype.kind == "f" else np.iinfo(x.dtype).min
        best = np.full((*x.shape[:2], *(axis.out for axis in axes)), lowest, x.dtype)
        winners = np.zeros(best.shape, np.int64)
        extents = tuple(axis.extent for axis in axes)
        for tap in taps(x, axes):
            order = -1 if attributes.get("storage_order") else 1
            flat = np.ravel_multi_index(tap.positions[::order], extents[::order], mode="clip")
            greater = tap.inside & ((tap.values > best) | np.isnan(tap.values))
            best = np.where(greater, tap.values, best)
            winners = np.where(greater, flat, winners)
        planes = np.arange(x.shape[0] * x.shape[1]).reshape(*x.shape[:2], *[1] * len(axes))
        indices = winners + planes * int(np.prod(extents))
        return (best, indices)[: len(self.onnx_node.output)]


class AveragePool(OpRun):  # type: ignore[misc]
    """The mean of each window, of its elements in the input or, where wanted, in the padding,
    too.
    """

    op_domain = ""

    def _run(self, x: Array, **attributes: Any) -> tuple[Array]:
        total, count = np.zeros(()), np.zeros(())
        for tap in taps(x.astype(np.float64), axes_of(x.shape, attributes)):
            total = total + tap.values
            count = count + (tap.padded if attributes.get("count_include_pad") else tap.inside)
        with np.errstate(divide="ignore", invalid="ignore"):
            return ((total / count).astype(x.dtype),)


class LpPool(OpRun):  # type: ignore[misc]
    """The p-norm of each window."""

    op_domain = ""

    def _run(self, x: Array, **attributes: Any) -> tuple[Array]:
        p = attributes.get("p") or 2
        powers = (
            np.abs(tap.values) ** p
            for tap in taps(x.astype(np.float64), axes_of(x.shape, attributes))
        )
        total: Array = sum(powers, np.zeros(()))
        return ((total ** (1 / p)).astype(x.dtype),)


class GlobalMaxPool(OpRun):  # type: ignore[misc]
    """The greatest element of each plane; onnx's own is right for two spatial axes alone."""

    op_domain = ""

    def _run(self, x: Array) -> tuple[Array]:
        return (x.max(axis=tuple(range(2, x.ndim)), keepdims=True),)


class GlobalLpPool(OpRun):  # type: ignore[misc]
    """The p-norm of each plane, which onnx's evaluator lacks."""

    op_domain = ""

    def _run(self, x: Array, **attributes: Any) -> tuple[Array]:
        p = attributes.get("p") or 2
        total = (np.abs(x.astype(np.float64)) ** p).sum(axis=tuple(range(2, x.ndim)), keepdims=True)
        return ((total ** (1 / p)).astype(x.dtype),)

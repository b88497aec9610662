"""Matmuls of 8-bit integers, exact: by float kernels as long as no partial sum leaves the integers
that float32 holds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from compiler.ir.graph.builder import Builder
from compiler.ir.graph.values import Known, Value
from compiler.ir.ops.math import linear
from compiler.ir.ops.math import reduce as rd
from compiler.ir.ops.nn import conv as nn_conv
from compiler.ir.ops.nn.window import Window
from compiler.ir.ops.pointwise import elementwise as ew
from compiler.ir.ops.quantized.quantize import subtract_zero
from compiler.ir.ops.shape import layout
from compiler.ir.shapes import extents as ex
from compiler.ir.shapes.extents import Extent

EXACT = 1 << 24
"""float32 holds every integer up to here, so sums that stay below come out exact in any order."""
MOST_PARTS = 8
"""A sum that needs more parts than this is done in integers."""


def span(value: Value, zero: Value | None) -> int:
    """The greatest magnitude of an element less its zero point."""
    info = np.iinfo(np.dtype(value.dtype))
    if zero is None:
        low = high = 0
    elif isinstance(zero, Known) and zero.data.size:
        low, high = int(zero.data.min()), int(zero.data.max())
    else:
        low, high = int(info.min), int(info.max)
    return max(int(info.max) - low, high - int(info.min))


def as_int8(b: Builder, values: Value, zero: Value | None) -> tuple[Value, Value | None]:
    """Int8 or uint8 values as int8, and their zero point as int32, None where it is 0 for all."""
    zero = Known.of(np.array(0, np.int32)) if zero is None else ew.cast(b, zero, "int32")
    if values.dtype != "int8":
        shift = Known.of(np.array(128, np.int32))
        zero = ew.subtract(b, zero, shift)
        if isinstance(values, Known):
            values = Known((values.data ^ 128).view(np.int8), "int8")
        else:
            values = ew.cast(b, ew.subtract(b, ew.cast(b, values, "int32"), shift), "int8")
    return values, None if isinstance(zero, Known) and not zero.data.any() else zero


def matmul(b: Builder, x: Value, y: Value, x_zero: Value | None, y_zero: Value | None) -> Value:
    """(x - x_zero) @ (y - y_zero) in int32; zero points are scalars, one a row (x) or one a column
    (y).
    """
    b.quantized = True
    depth = x.shape[-1]
    y, y_zero, rest = _fit_bytes(b, y, y_zero, len(y.shape) - 1)
    if rest is not None:
        # x @ (y - zero) = x @ y - zero * sum(x): weights less a zero point would take nine bits.
        left = subtract_zero(b, x, x_zero, max(len(x.shape) - 2, 0), _exact_dtype(b, depth))
        totals = ew.cast(b, rd.reduce(b, left, "sum", [-1], True), "int32")
        result = matmul(b, x, y, x_zero, None)
        return ew.subtract(b, result, ew.multiply(b, totals, rest))
    row, column = max(len(x.shape) - 2, 0), len(y.shape) - 1
    bound = _bound(b, span(x, x_zero), y, y_zero, depth, max(len(y.shape) - 2, 0), column)
    parts = _parts(b, depth, bound)
    dtype = "float32" if parts else "int32"
    left, right = (
        subtract_zero(b, x, x_zero, row, dtype),
        subtract_zero(b, y, y_zero, column, dtype),
    )

    def partial(start: int, stop: int) -> Value:
        inner = layout.strided_slice(b, right, max(len(y.shape) - 2, 0), start, stop, 1)
        return linear.matmul(
            b, layout.strided_slice(b, left, len(x.shape) - 1, start, stop, 1), inner
        )

    return _summed(b, partial, parts) if parts else linear.matmul(b, left, right)


def conv(
    b: Builder,
    x: Value,
    weight: Value,
    x_zero: Value | None,
    weight_zero: Value | None,
    window: Window,
    groups: int,
) -> Value:
    """The convolution of x - x_zero with weight - weight_zero in int32; padding stands
    for x_zero.
    """
    b.quantized = True
    if _adds_up_image(b, x, weight, weight_zero, window, groups):
        centred = subtract_zero(b, x, x_zero, 1, "int32")
        return rd.reduce(b, centred, "sum", list(range(2, len(x.shape))), True)
    depth, taps = weight.shape[1], ex.prod(weight.shape[2:])
    if groups == 1:
        weight, weight_zero, rest = _fit_bytes(b, weight, weight_zero, 0)
        if rest is not None:
            # As for matmuls, with the sums under each window.
            dtype = _exact_dtype(b, ex.mul(depth, taps))
            left = rd.reduce(b, subtract_zero(b, x, x_zero, 1, dtype), "sum", [1], True)
            ones = Known.of(np.ones((1, 1, *weight.shape[2:]), np.dtype(dtype)))
            totals = ew.cast(b, nn_conv.conv(b, left, ones, None, window, 1), "int32")
            result = conv(b, x, weight, x_zero, None, window, 1)
            channels = rest.shape[0] if rest.shape else 1
            spread = layout.reshape(b, rest, [channels, *[1] * len(weight.shape[2:])])
            return ew.subtract(b, result, ew.multiply(b, totals, spread))
    bound = _bound(b, span(x, x_zero), weight, weight_zero, ex.mul(depth, taps), 1, 0)
    parts = _parts(b, depth, bound)
    if len(parts) > 1 and groups > 1:
        parts = []
    dtype = "float32" if parts else "int32"
    left, right = (
        subtract_zero(b, x, x_zero, 1, dtype),
        subtract_zero(b, weight, weight_zero, 0, dtype),
    )

    def partial(start: int, stop: int) -> Value:
        if len(parts) == 1:
            return nn_conv.conv(b, left, right, None, window, groups)
        pieces = [layout.strided_slice(b, value, 1, start, stop, 1) for value in (left, right)]
        return nn_conv.conv(b, pieces[0], pieces[1], None, window, groups)

    return (
        _summed(b, partial, parts) if parts else nn_conv.conv(b, left, right, None, window, groups)
    )


def _adds_up_image(
    b: Builder, x: Value, weight: Value, zero: Value | None, window: Window, groups: int
) -> bool:
    """True where each channel's elements are added up: by weights that are 1, of which there are
    as many as elements.
    """
    return (
        isinstance(weight, Known)
        and zero is None
        and weight.shape[1] == 1
        and weight.shape[0] == groups
        and bool((weight.data == 1).all())
        and not window.padded
        and all(
            b.facts.same(size, extent) is True
            for size, extent in zip(weight.shape[2:], x.shape[2:], strict=True)
        )
    )


def _fit_bytes(
    b: Builder, values: Value, zero: Value | None, axis: int
) -> tuple[Value, Value | None, Value | None]:
    """Known weights as int8 where they are bytes with zero points: (weights, zero point) that stand
    for the same, and what is left of the zero points, int32, where weights less those take more
    than 8 bits. Others as they are.
    """
    if not isinstance(values, Known) or not (zero is None or isinstance(zero, Known)):
        return values, zero, None
    if values.dtype not in ("int8", "uint8") or (zero is None and values.dtype == "int8"):
        return values, zero, None
    centred = _centred(b, values, zero, axis)
    if not centred.size or (centred.min() >= -128 and centred.max() <= 127):
        return Known(centred.astype(np.int8), "int8"), None, None
    signed, rest = as_int8(b, values, zero)
    return signed, None, rest


def _exact_dtype(b: Builder, count: Extent) -> str:
    """float32 where sums of so many bytes are exact in it, else int32."""
    most = b.facts.bounds(count)[1]
    return "float32" if most is not None and most * 255 <= EXACT else "int32"


def _bound(
    b: Builder, reach: int, weight: Value, zero: Value | None, depth: Extent, axis: int, outer: int
) -> Callable[[int, int], int] | int | None:
    """The greatest magnitude of a result: a number, None for no bound, or for known weights a
    function of the part of `axis`.
    """
    if (
        isinstance(weight, Known)
        and (zero is None or isinstance(zero, Known))
        and weight.data.ndim > 1
    ):
        sizes = np.abs(_centred(b, weight, zero, outer))

        def within(start: int, stop: int) -> int:
            part = sizes[(slice(None),) * axis + (slice(start, stop),)]
            total = (
                part.sum(axis=-2)
                if axis == sizes.ndim - 2
                else part.sum(axis=tuple(range(1, part.ndim)))
            )
            return reach * int(total.max(initial=0))

        return within
    most = b.facts.bounds(depth)[1]
    return None if most is None else reach * span(weight, zero) * most


def _centred(b: Builder, weight: Known, zero: Known | None, axis: int) -> np.ndarray[Any, Any]:
    """Known integers less their zero points, of any size: a cast in the graph is computed here for
    small ones only.
    """
    if zero is None:
        return weight.data.astype("int32")
    centred = subtract_zero(b, weight, zero, axis, "int32")
    assert isinstance(centred, Known)
    return centred.data


def _parts(
    b: Builder, depth: Extent, bound: Callable[[int, int], int] | int | None
) -> list[tuple[int, int]]:
    """The ranges of the summed axis to add up one by one, none where only integers will do."""
    all_depth = (0, layout.INT64_MAX)
    depth = b.facts.simplify(depth)
    if bound is None:
        return []
    if not callable(bound) and (bound <= EXACT or not isinstance(depth, int)):
        return [all_depth] if bound <= EXACT else []
    assert isinstance(depth, int)
    for count in range(1, min(MOST_PARTS, depth) + 1):
        edges = [depth * i // count for i in range(count + 1)]
        ranges = list(pairwise(edges))
        if all(_largest(bound, depth, *part) <= EXACT for part in ranges):
            return [all_depth] if count == 1 else ranges
    return [] if depth else [all_depth]


def _largest(bound: Callable[[int, int], int] | int, depth: int, start: int, stop: int) -> int:
    return bound(start, stop) if callable(bound) else bound * (stop - start) // depth + 1


def _summed(
    b: Builder, partial: Callable[[int, int], Value], parts: Sequence[tuple[int, int]]
) -> Value:
    total: Any = None
    for start, stop in parts:
        part = ew.cast(b, partial(start, stop), "int32")
        total = part if total is None else ew.add(b, total, part)
    return total  # type: ignore[no-any-return]

"""Operators of quantized programs, as torch.ao (PT2E) and torchao write them: floats to integers on
a grid, back, and the grids of values that only a run knows.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from tvm import tirx

from compiler.ir.aten.memory import Ref
from compiler.ir.aten.node import Node
from compiler.ir.aten.registry import op
from compiler.ir.graph.builder import Builder
from compiler.ir.graph.values import Known, Value
from compiler.ir.ops.math import reduce as rd
from compiler.ir.ops.pointwise import elementwise as ew
from compiler.ir.ops.pointwise import extremes
from compiler.ir.ops.pointwise.programs import pointwise
from compiler.ir.ops.quantized import integer
from compiler.ir.ops.quantized import quantize as qt
from compiler.ir.ops.quantized.dequantized import Dequantized
from compiler.ir.ops.quantized.quantize import Grid
from compiler.ir.ops.shape import layout
from compiler.ir.shapes import extents as ex
from compiler.ir.shapes.extents import Extent

_AO, _TORCHAO = "quantized_decomposed::", "torchao::"


def _number(value: float) -> Known:
    return Known(np.asarray(value, np.float32), "float32")


def _parameter(b: Builder, node: Node, name: str, dtype: str) -> Value:
    """A number, or the one element of a tensor, as a value of rank 0."""
    item = node.get(name)
    if isinstance(item, Ref):
        return ew.cast(b, layout.reshape(b, node.memory.read(item), []), dtype)
    return Known(np.asarray(item).astype(dtype), dtype)


def _zeros(b: Builder, node: Node, name: str) -> Value | None:
    """Zero points as int32; None where all are 0."""
    value = node.optional(name)
    if value is None or value.shape == (0,):
        return None
    value = ew.cast(b, value, "int32")
    return None if isinstance(value, Known) and not value.data.any() else value


def _tensor_grid(b: Builder, node: Node) -> Grid:
    zero = _parameter(b, node, "zero_point", "int32")
    absent = isinstance(zero, Known) and not zero.data.any()
    return Grid(_parameter(b, node, "scale", "float32"), None if absent else zero)


def _channel_grid(b: Builder, node: Node) -> Grid:
    scales = ew.cast(b, node.value("scales"), "float32")
    axis = node.axis("axis", len(node.value("input").shape))
    return Grid(scales, _zeros(b, node, "zero_points"), axis)


@op(f"{_AO}quantize_per_tensor")
def quantize_per_tensor(b: Builder, node: Node) -> Value:
    """Integers by one scale and zero point."""
    return _quantize(b, node, _tensor_grid(b, node))


@op(f"{_AO}quantize_per_channel")
def quantize_per_channel(b: Builder, node: Node) -> Value:
    """Integers by a scale and zero point for each position on `axis`."""
    return _quantize(b, node, _channel_grid(b, node))


def _quantize(b: Builder, node: Node, grid: Grid) -> Value:
    """torch multiplies by the inverse of the scale, which divides otherwise in the last bit."""
    x = ew.cast(b, node.value("input"), "float32")
    rank = len(x.shape)
    inverse = ew.divide(b, _number(1), grid.scale)
    if grid.scale.shape:
        spread: list[Extent] = [1] * rank
        spread[grid.axis] = grid.scale.shape[0]
        inverse = layout.reshape(b, inverse, spread)
    one = _number(1)
    scaled, dtype = ew.multiply(b, x, inverse), node.dtype("dtype", "int8")
    zero = grid.zero
    if zero is not None and zero.shape:
        one = Known(np.ones(zero.shape, np.float32), "float32")
    result = qt.quantize(b, scaled, Grid(one, zero, grid.axis), dtype)
    return _limit(b, result, node.int("quant_min"), node.int("quant_max"))


def _limit(b: Builder, x: Value, low: int, high: int) -> Value:
    """Integers within a range that may be narrower than their dtype's."""
    info = np.iinfo(np.dtype(x.dtype))
    if low > info.min:
        x = extremes.greater(b, x, Known.of(np.array(low, x.dtype)))
    return x if high >= info.max else extremes.lesser(b, x, Known.of(np.array(high, x.dtype)))


@op(f"{_AO}dequantize_per_tensor")
def dequantize_per_tensor(b: Builder, node: Node) -> Value:
    """Floats of integers by one scale and zero point."""
    return _dequantize(b, node, _tensor_grid(b, node), "out_dtype")


@op(f"{_AO}dequantize_per_channel")
def dequantize_per_channel(b: Builder, node: Node) -> Value:
    """Floats of integers by a scale and zero point for each position on `axis`."""
    return _dequantize(b, node, _channel_grid(b, node), "out_dtype")


@op(f"{_AO}dequantize_per_channel_group")
def dequantize_per_channel_group(b: Builder, node: Node) -> Value:
    """Floats of a matrix of integers by a scale and zero point for each group within a row."""
    rows, depth = node.value("input").shape
    group = node.int("group_size", 128)
    if not isinstance(depth, int) or depth % group:
        node.fail(f"rows of {depth} do not divide into groups of {group}", reason="shape")
    shape = [rows, depth // group]
    scale = layout.reshape(b, ew.cast(b, node.value("scales"), "float32"), shape)
    zero = _zeros(b, node, "zero_points")
    zero = None if zero is None else layout.reshape(b, zero, shape)
    return _dequantize(b, node, Grid(scale, zero, 1, group), "output_dtype")


def _dequantize(b: Builder, node: Node, grid: Grid, dtype: str) -> Value:
    integers = node.value("input")
    result = qt.dequantize(b, integers, grid, node.dtype(dtype, "float32"))
    b.dequantized[result] = Dequantized(integers, grid)
    return result


@op(f"{_AO}quantize_per_token")
def quantize_per_token(b: Builder, node: Node) -> Value:
    """Integers by a scale and zero point for each row; the sum with the zero point is rounded."""
    x = ew.cast(b, node.value("input"), "float32")
    scales, zeros = (_per_row(b, node, name, x.shape) for name in ("scales", "zero_points"))
    return _affine(b, node, x, (scales, zeros), node.dtype("dtype", "int8"), adds_first=True)


@op(f"{_AO}dequantize_per_token")
def dequantize_per_token(b: Builder, node: Node) -> Value:
    """Floats of integers by a scale and zero point for each row."""
    x = ew.cast(b, node.value("input"), "float32")
    scales, zeros = (_per_row(b, node, name, x.shape) for name in ("scales", "zero_points"))
    result = ew.multiply(b, ew.subtract(b, x, zeros), scales)
    return ew.cast(b, result, node.dtype("output_dtype", "float32"))


def _per_row(b: Builder, node: Node, name: str, shape: Sequence[Extent]) -> Value:
    value = ew.cast(b, node.value(name), "float32")
    return layout.reshape(b, value, [*shape[:-1], 1])


def _affine(
    b: Builder,
    node: Node,
    x: Value,
    grid: tuple[Value, Value],
    dtype: str,
    *,
    adds_first: bool = False,
) -> Value:
    """round(x * (1 / scale)) + zero within the node's range; scale and zero broadcast."""
    low, high = (
        tirx.const(float(node.int(name)), "float32") for name in ("quant_min", "quant_max")
    )

    def element(item: Any, scale: Any, zero: Any) -> Any:
        scaled = item * (tirx.const(1, "float32") / scale)
        moved = scaled + zero if adds_first else tirx.nearbyint(scaled) + zero
        bounded = tirx.min(tirx.max(moved, low), high)
        return tirx.nearbyint(bounded).astype(dtype)

    b.quantized = True
    return pointwise(b, element, x, *grid, name="quantize")


@op(f"{_TORCHAO}quantize_affine")
def quantize_affine(b: Builder, node: Node) -> Value:
    """Integers by a scale and zero point for each block of the axes."""
    x = node.value("input")
    cut = _Blocks(b, node, x.shape)
    values = layout.reshape(b, ew.cast(b, x, "float32"), cut.shape)
    result = _affine(b, node, values, cut.grid(b, node), node.dtype("output_dtype", "int8"))
    return layout.reshape(b, result, x.shape)


@op(f"{_TORCHAO}dequantize_affine")
def dequantize_affine(b: Builder, node: Node) -> Value:
    """Floats of integers by a scale and zero point for each block of the axes."""
    x, dtype = node.value("input"), node.dtype("output_dtype", "float32")
    cut = _Blocks(b, node, x.shape)
    scale, zero = cut.grid(b, node)
    grid = cut.matrix_grid(b, scale, zero)
    if isinstance(x, Known) and grid is not None and grid.known:
        result = qt.dequantize(b, x, grid, dtype)
        b.dequantized[result] = Dequantized(x, grid)
        return result
    values = layout.reshape(b, ew.cast(b, x, "float32"), cut.shape)
    real = ew.multiply(b, ew.subtract(b, values, zero), scale)
    return ew.cast(b, layout.reshape(b, real, x.shape), dtype)


class _Blocks:
    """How a tensor's axes are cut: an axis of several blocks becomes two, of which the second is
    reduced.
    """

    def __init__(self, b: Builder, node: Node, shape: Sequence[Extent]) -> None:
        self.shape: list[Extent] = []
        self.reduced: list[int] = []
        self.sizes = node.extents("block_size")
        if len(self.sizes) != len(shape):
            node.fail(f"{len(self.sizes)} block sizes for {len(shape)} axes", reason="shape")
        for size, extent in zip(self.sizes, shape, strict=True):
            if b.facts.same(size, 1) is not True:
                if b.facts.same(size, extent) is not True:
                    b.require(ex.equal(ex.floormod(extent, size), 0), "blocks fill their axis")
                    self.shape.append(b.facts.simplify(ex.floordiv(extent, size)))
                    extent = size
                self.reduced.append(len(self.shape))
            self.shape.append(extent)

    def grid(self, b: Builder, node: Node) -> tuple[Value, Value]:
        """Scale and zero point as float32 with 1 for the reduced axes."""
        after = [1 if axis in self.reduced else extent for axis, extent in enumerate(self.shape)]
        scale = layout.reshape(b, ew.cast(b, node.value("scale"), "float32"), after)
        zero = node.optional("zero_point")
        if zero is None or zero.shape == (0,):
            return scale, _number(0)
        return scale, layout.reshape(b, ew.cast(b, zero, "float32"), after)

    def matrix_grid(self, b: Builder, scale: Value, zero: Value) -> Grid | None:
        """The grid of a matrix whose rows have a scale or are cut into blocks; None for others."""
        if len(self.sizes) != 2 or self.sizes[0] != 1 or not isinstance(self.sizes[1], int):
            return None
        is_uncut = len(self.shape) == 2
        target = self.shape[:1] if is_uncut else self.shape[:2]
        is_zero = isinstance(zero, Known) and not zero.data.any()
        parts = [layout.reshape(b, scale, target)]
        parts += [] if is_zero else [layout.reshape(b, zero, target)]
        block = 0 if is_uncut else self.sizes[1]
        return Grid(parts[0], parts[1] if len(parts) > 1 else None, 0 if is_uncut else 1, block)


@op(f"{_TORCHAO}choose_qparams_affine")
def choose_qparams_affine(b: Builder, node: Node) -> list[Value]:
    """Scale and zero point of each block by its least and greatest value."""
    x = ew.cast(b, node.value("input"), "float32")
    cut = _Blocks(b, node, x.shape)
    keeps = node.bool("keepdim", False)
    values = layout.reshape(b, x, cut.shape)
    extremes_of = _extremes(b, values, cut.reduced, keeps)
    eps = node.get("eps", None)
    least = float(np.finfo(np.float32).tiny) if eps is None else float(eps)
    scale, zero = _choose(b, node, extremes_of, node.text("mapping_type"), least)
    if keeps:
        sizes = zip(x.shape, cut.sizes, strict=True)
        shape = [b.facts.simplify(ex.floordiv(extent, size)) for extent, size in sizes]
        scale, zero = (layout.reshape(b, part, shape) for part in (scale, zero))
    kinds = node.dtype("scale_dtype", x.dtype), node.dtype("zero_point_dtype", "int32")
    return [ew.cast(b, scale, kinds[0]), ew.cast(b, zero, kinds[1])]


def _extremes(b: Builder, x: Value, axes: list[int], keeps: bool) -> tuple[Value, Value]:
    least, most = (rd.reduce(b, x, kind, axes, keeps, keep_nan=True) for kind in ("min", "max"))
    return least, most


def _choose(
    b: Builder, node: Node, ends: tuple[Value, Value], mapping: str, eps: float
) -> tuple[Value, Value]:
    """Scale and zero point as float32, by the least and greatest values."""
    low, high = float(node.int("quant_min")), float(node.int("quant_max"))
    zero = tirx.const(0, "float32")

    def number(value: float) -> Any:
        return tirx.const(value, "float32")

    def scale_of(least: Any, most: Any) -> Any:
        bottom, top = tirx.min(least, zero), tirx.max(most, zero)
        match mapping:
            case "ASYMMETRIC":
                step = (top - bottom) / number(high - low)
            case "SYMMETRIC":
                step = tirx.max(zero - bottom, top) / number((high - low) / 2)
            case _:
                step = tirx.max(bottom / number(low), top / number(high))
        return tirx.max(step, number(eps))

    def zero_of(least: Any, scale: Any) -> Any:
        if mapping != "ASYMMETRIC":
            return number(float(int((high + low + 1) / 2)))
        moved = number(low) - tirx.nearbyint(tirx.min(least, zero) / scale)
        return tirx.min(tirx.max(moved, number(low)), number(high))

    if mapping not in ("ASYMMETRIC", "SYMMETRIC", "SYMMETRIC_NO_CLIPPING_ERR"):
        node.fail(f"the mapping {mapping[:40]!r} is not supported", reason="unsupported_form")
    scale = pointwise(b, scale_of, *ends, name="scale")
    return scale, pointwise(b, zero_of, ends[0], scale, name="zero_point")


@op(f"{_AO}choose_qparams", f"{_AO}choose_qparams_symmetric")
def choose_qparams(b: Builder, node: Node) -> list[Value]:
    """Scale (float64) and zero point (int64) of a tensor, each of one element."""
    x = ew.cast(b, node.value("input"), "float32")
    ends = _extremes(b, x, list(range(len(x.shape))), False)
    symmetric = node.kind.endswith("symmetric")
    scale, zero = _choose(
        b, node, ends, "SYMMETRIC" if symmetric else "ASYMMETRIC", node.float("eps")
    )
    if symmetric:
        middle = 128 if node.dtype("dtype", "int8") == "uint8" else 0
        zero = _number(middle)
    parts = (ew.cast(b, scale, "float64"), ew.cast(b, zero, "int64"))
    return [layout.reshape(b, part, [1]) for part in parts]


@op(f"{_AO}choose_qparams_per_token_asymmetric")
def choose_qparams_per_token(b: Builder, node: Node) -> list[Value]:
    """Scale (float64) and zero point (int64) of every row, as int8."""
    x = ew.cast(b, node.value("input"), "float32")
    least, most = _extremes(b, x, [len(x.shape) - 1], True)
    low, high = (tirx.const(value, "float32") for value in (-128, 127))
    zero, eps = (tirx.const(value, "float32") for value in (0, np.finfo(np.float32).eps))

    def scale_of(bottom: Any, top: Any) -> Any:
        step = (tirx.max(top, zero) - tirx.min(bottom, zero)) / tirx.const(255, "float32")
        return tirx.max(step, eps)

    def zero_of(bottom: Any, top: Any, scale: Any) -> Any:
        down, up = tirx.min(bottom, zero) / scale, tirx.max(top, zero) / scale
        by_least = (low + down) + (high + up) > zero
        moved = tirx.Select(by_least, low - down, high - up)
        return tirx.nearbyint(tirx.min(tirx.max(moved, low), high))

    scale = pointwise(b, scale_of, least, most, name="scale")
    point = pointwise(b, zero_of, least, most, scale, name="zero_point")
    return [ew.cast(b, scale, "float64"), ew.cast(b, point, "int64")]


@op("_int_mm")
def int_mm(b: Builder, node: Node) -> Value:
    """The int32 matmul of int8 matrices."""
    return integer.matmul(b, node.value("self"), node.value("mat2"), None, None)

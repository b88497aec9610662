"""Integers that stand for reals: quantizes and dequantizes by scales and zero points of a tensor,
an axis or blocks.
"""

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from tvm import te, tirx

from compiler.errors import ImportFailed
from compiler.ir.formats import FLOATS, WIDTHS, encode, limits_of
from compiler.ir.graph.builder import Builder
from compiler.ir.graph.values import Known, Value
from compiler.ir.ops.math import reduce as rd
from compiler.ir.ops.pointwise import elementwise as ew
from compiler.ir.ops.pointwise.programs import pointwise
from compiler.ir.ops.quantized import small_types
from compiler.ir.ops.shape import layout
from compiler.ir.shapes import extents as ex
from compiler.ir.shapes.extents import Extent
from relaxd.contract.dims.tensors import storage_of

INTEGERS = ("uint8", "int8", "uint16", "int16")
"""What reals are quantized to, beside the types of `compiler.ir.formats`."""


@dataclass(frozen=True)
class Grid:
    """real = (integer - zero) * scale; both of one shape: a scalar, [extent of `axis`], or with
    `block`, blocks along `axis`.
    """

    scale: Value
    zero: Value | None = None
    axis: int = 0
    block: int = 0

    @property
    def parameters(self) -> list[Value]:
        """The scale, and the zero point where there is one."""
        return [self.scale] if self.zero is None else [self.scale, self.zero]

    @property
    def known(self) -> bool:
        """True if import knows both."""
        return all(isinstance(value, Known) and not value.symbolic for value in self.parameters)


def work_of(dtype: str) -> str:
    """The float in which arithmetic for `dtype` is done."""
    return "float64" if dtype == "float64" else "float32"


def quantize(
    b: Builder,
    x: Value,
    grid: Grid,
    dtype: str,
    precision: str | None = None,
    saturate: bool = True,
) -> Value:
    """Saturate(round(x / scale) + zero), halves to even; the quotient is rounded to `precision`, by
    default the scale's dtype. Floats may be asked not to `saturate`.
    """
    precision = precision or grid.scale.dtype
    work, grid = work_of(precision), _widened(b, grid)

    def quantize_element(item: Any, scale: Any, zero: Any) -> Any:
        quotient = item.astype(work) / scale.astype(work)
        quotient = quotient.astype(precision).astype(work) if precision != work else quotient
        if dtype not in FLOATS:
            return saturate_to(quotient, zero, dtype)
        real = quotient.astype("float32")
        return encode(real if zero is None else real + zero, dtype, saturate)

    if isinstance(x, Known) and not x.symbolic and grid.known and dtype not in FLOATS:
        scale, zero = _spread(b, grid, x.shape)
        with np.errstate(all="ignore"):
            quotient = (x.data.astype(work) / scale.astype(work)).astype(precision)
            moved = np.clip(np.rint(quotient.astype("float64")) + zero, *_limits(dtype))
            return Known(moved.astype(np.dtype(dtype)), dtype)
    b.quantized = True
    return small_types.from_storage(_apply(b, x, grid, quantize_element, "quantize"), dtype)


def _widened(b: Builder, grid: Grid) -> Grid:
    """The grid with a zero point of a type that arithmetic takes."""
    zero = None if grid.zero is None else small_types.widen(b, grid.zero)
    return dataclasses.replace(grid, zero=zero)


def saturate_to(value: Any, zero: Any, dtype: str) -> Any:
    """A float expression rounded, halves to even, moved by `zero` (None for 0) and kept within the
    integers of `dtype`.

    It is clamped before it is rounded, so that no cast overflows.
    """
    low, high = (tirx.const(limit, "int32") for limit in _limits(dtype))
    shift = tirx.const(0, "int32") if zero is None else zero.astype("int32")
    least, most = ((limit - shift).astype(value.ty.dtype) for limit in (low, high))
    return (tirx.nearbyint(tirx.min(tirx.max(value, least), most)).astype("int32") + shift).astype(
        storage_of(dtype)
    )


def dequantize(b: Builder, x: Value, grid: Grid, dtype: str | None = None) -> Value:
    """(x - zero) * scale in `dtype`, by default the scale's; known numbers fold whatever their
    number.
    """
    x, grid = small_types.widen(b, x), _widened(b, grid)
    dtype = dtype or grid.scale.dtype
    work = work_of(dtype)
    wide = "int64" if x.dtype in ("int32", "uint32") else "int32"
    wide = x.dtype if ew.is_float(x.dtype) else wide

    def dequantize_element(item: Any, scale: Any, zero: Any) -> Any:
        apart = item.astype(wide) if zero is None else item.astype(wide) - zero.astype(wide)
        return (apart.astype(work) * scale.astype(work)).astype(dtype)

    if isinstance(x, Known) and not x.symbolic and grid.known:
        scale, zero = _spread(b, grid, x.shape)
        return Known(
            ((x.data.astype(wide) - zero).astype(work) * scale.astype(work)).astype(
                np.dtype(dtype)
            ),
            dtype,
        )
    if not grid.block and x.dtype in INTEGERS and _is_one(grid.scale):
        return subtract_zero(b, x, grid.zero, grid.axis, dtype)
    return _apply(b, x, grid, dequantize_element, "dequantize")


def _is_one(scale: Value) -> bool:
    return isinstance(scale, Known) and not scale.symbolic and bool((scale.data == 1).all())


def subtract_zero(b: Builder, x: Value, zero: Value | None, axis: int, dtype: str) -> Value:
    """X less its zero point, a scalar or one for each position on `axis`, in a wider dtype."""
    if zero is None:
        return ew.cast(b, x, dtype)
    if isinstance(x, Known) and isinstance(zero, Known):
        _, spread = _spread(b, Grid(zero, zero, axis), x.shape)
        return Known((x.data.astype("int32") - spread).astype(dtype), dtype)

    def centre_element(item: Any, least: Any, _: Any) -> Any:
        return (item.astype("int32") - least.astype("int32")).astype(dtype)

    return _apply(b, x, Grid(zero, None, axis), centre_element, "centred")


def dynamic(b: Builder, x: Value) -> tuple[Value, Value, Value]:
    """X as uint8 on the finest grid that holds its range and zero: integers, scale and zero point
    (float32 and uint8 scalars).
    """
    axes = list(range(len(x.shape)))
    least, most = (rd.reduce(b, x, kind, axes, False) for kind in ("min", "max"))

    def step(low: Any, high: Any) -> Any:
        zero = tirx.const(0, "float32")
        span = tirx.max(high, zero) - tirx.min(low, zero)
        return tirx.Select(
            tirx.EQ(span, zero), tirx.const(1, "float32"), span / tirx.const(255, "float32")
        )

    def origin(low: Any, scale: Any) -> Any:
        zero = tirx.const(0, "float32")
        return saturate_to(zero - tirx.min(low, zero) / scale, None, "uint8")

    scale = pointwise(b, step, b.tensor(least), most, name="scale")
    zero = pointwise(b, origin, b.tensor(least), scale, name="zero_point")
    return quantize(b, x, Grid(scale, zero), "uint8"), scale, zero


def _limits(dtype: str) -> tuple[int, int]:
    if dtype in WIDTHS:
        return limits_of(dtype)
    if dtype not in INTEGERS:
        raise ImportFailed(
            f"quantization to {dtype} is not supported",
            reason="unsupported_dtype",
            hint=f"quantize to one of {', '.join((*INTEGERS, *WIDTHS, *FLOATS))}",
        )
    info = np.iinfo(np.dtype(dtype))
    return int(info.min), int(info.max)


def _apply(
    b: Builder, x: Value, grid: Grid, function: Callable[[Any, Any, Any], Any], name: str
) -> Value:
    """`function` of each element with its scale and zero point (None where there is none)."""
    axis = layout.axis_of(grid.axis, len(x.shape)) if x.shape else 0
    index_maps = [
        _index_map(b, value.shape, x.shape, axis, grid.block) for value in grid.parameters
    ]
    x = b.tensor(x)

    def compute(data: te.Tensor, *parameters: te.Tensor) -> te.Tensor:
        def element(*i: Any) -> Any:
            numbers = [
                parameter(*index_map(i))
                for parameter, index_map in zip(parameters, index_maps, strict=True)
            ]
            return function(data(*i), numbers[0], numbers[1] if len(numbers) > 1 else None)

        return te.compute(data.shape, element, name=name)

    return b.te(compute, x, *grid.parameters, name=name, elementwise=not grid.block)


def _index_map(
    b: Builder, have: Sequence[Extent], x: Sequence[Extent], axis: int, block: int
) -> Callable[[Sequence[Any]], list[Any]]:
    """From an element's index in x to that of its parameter, in the shape `have`."""
    if block:
        _check_blocks(b, have, x, axis, block)
        return lambda i: [
            tirx.floordiv(step, ex.prim(block)) if d == axis else step for d, step in enumerate(i)
        ]
    if all(b.facts.same(extent, 1) is True for extent in have):
        return lambda _: [ex.prim(0)] * len(have)
    if len(have) == len(x) > 1:
        return lambda i: [_step(b, extent, step) for extent, step in zip(have, i, strict=True)]
    if len(have) != 1:
        raise ImportFailed(
            f"a scale of {len(have)} axes for a tensor of {len(x)} axes needs a block size",
            reason="shape",
        )
    length = x[axis] if x else 1
    fits = ex.either(ex.equal(have[0], 1), ex.equal(have[0], length))
    b.require(fits, f"a scale of {have[0]} elements for axis {axis} of {length}")
    return lambda i: [_step(b, have[0], i[axis]) if x else ex.prim(0)]


def _step(b: Builder, extent: Extent, i: Any) -> Any:
    """An index on an axis that may be 1 and is then repeated."""
    same = b.facts.same(extent, 1)
    return (
        i
        if same is False
        else ex.prim(0)
        if same
        else tirx.Select(tirx.EQ(ex.prim(extent), ex.prim(1)), ex.prim(0), i)
    )


def _check_blocks(
    b: Builder, have: Sequence[Extent], x: Sequence[Extent], axis: int, block: int
) -> None:
    if len(have) != len(x):
        raise ImportFailed(
            f"scales in blocks have the tensor's rank, {len(x)}, not {len(have)}", reason="shape"
        )
    for d, (mine, theirs) in enumerate(zip(have, x, strict=True)):
        wanted = ex.ceildiv(theirs, block) if d == axis else theirs
        b.same(
            mine,
            b.facts.simplify(wanted),
            f"scales in blocks of {block} have {mine} positions on axis {d}, not {wanted}",
        )


def _spread(b: Builder, grid: Grid, shape: Sequence[int]) -> tuple[Any, Any]:
    """Known scale and zero point (0 for none) as arrays that broadcast to a shape."""
    axis = layout.axis_of(grid.axis, len(shape)) if shape else 0
    arrays: list[Any] = []
    for value in grid.parameters:
        assert isinstance(value, Known)
        _index_map(b, value.shape, shape, axis, grid.block)
        arrays.append(_laid_out(value.data, shape, axis, grid.block))
    if len(arrays) == 1:
        return arrays[0], 0
    return arrays[0], arrays[1] if arrays[1].dtype.kind == "f" else arrays[1].astype("int64")


def _laid_out(data: np.ndarray[Any, Any], shape: Sequence[int], axis: int, block: int) -> Any:
    if block:
        return np.take(np.repeat(data, block, axis), range(shape[axis]), axis)
    if data.size == 1:
        return data.reshape(())
    if data.ndim == len(shape) > 1:
        return data
    return data.reshape([-1 if d == axis else 1 for d in range(len(shape))])


def rescale(
    b: Builder, total: Value, left: Value, left_axis: int, right: Value, right_axis: int
) -> Value:
    """Accumulators as float32: times both scales, each a scalar or one for each position on its
    axis.
    """
    result = ew.cast(b, total, "float32")
    for scale, axis in ((left, left_axis), (right, right_axis)):
        result = _apply(
            b,
            result,
            Grid(scale, None, axis),
            lambda item, s, _: item * s.astype("float32"),
            "rescale",
        )
    return result

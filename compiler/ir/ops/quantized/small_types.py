"""Values of the element types in `compiler.ir.formats`: seen as bytes, and cast to and from all
other types.
"""

import dataclasses
from typing import Any

import numpy as np
from tvm import tirx

from compiler.ir import formats
from compiler.ir.graph.builder import Builder
from compiler.ir.graph.values import Known, Tensor, Value
from compiler.ir.ops.pointwise import elementwise as ew
from compiler.ir.ops.pointwise import programs as pw
from compiler.ir.ops.pointwise.conversion import convert
from relaxd.contract.dims.tensors import STORAGE, storage_of


def is_small(dtype: str) -> bool:
    """True for a type whose elements are stored in bytes of another."""
    return dtype in STORAGE


def to_storage(value: Value) -> Value:
    """The bytes that store a value, as a value of their own type; any other value as it is."""
    if not is_small(value.dtype):
        return value
    if isinstance(value, Tensor):
        return dataclasses.replace(value, dtype=storage_of(value.dtype))
    return Known(value.storage, storage_of(value.dtype))


def from_storage(value: Value, dtype: str) -> Value:
    """The inverse of `to_storage`."""
    if not is_small(dtype):
        return value
    if isinstance(value, Tensor):
        return dataclasses.replace(value, dtype=dtype)
    if dtype in formats.WIDTHS:
        return Known(value.data.astype(np.dtype(dtype)), dtype)
    return Known(value.data.view(np.dtype(dtype)), dtype)


def widen(b: Builder, value: Value) -> Value:
    """The numbers themselves, exactly: floats as float32, integers as those of 8 bits."""
    if value.dtype in formats.WIDTHS or not is_small(value.dtype):
        return to_storage(value)
    if isinstance(value, Known):
        return Known(value.data.astype(np.float32), "float32")
    return pw.pointwise(
        b, lambda byte: formats.decode(byte, value.dtype), to_storage(value), name="decode"
    )


def cast(
    b: Builder, x: Value, dtype: str, *, saturate: bool = True, round_mode: str = "up"
) -> Value:
    """Elements converted to `dtype`, narrow or not, as ONNX's Cast converts them.

    Whatever becomes a narrow float goes through float32, as in ONNX's own evaluator and ONNX
    Runtime; numbers out of a narrow integer's range keep their lowest bits.
    """
    if x.dtype == dtype:
        return x
    wide = widen(b, x)
    if not is_small(dtype):
        return convert(b, wide, dtype)
    b.quantized = b.quantized or ew.is_float(wide.dtype)
    if dtype in formats.WIDTHS:
        return from_storage(_to_integer(b, wide, dtype), dtype)
    real = ew.cast(b, wide, "float32")

    def encode(item: Any) -> Any:
        return formats.encode(item, dtype, saturate, round_mode)

    return from_storage(pw.pointwise(b, encode, real, name="encode"), dtype)


def bit_cast(b: Builder, x: Value, dtype: str) -> Value:
    """The same bits as another dtype of the same width, one of the two narrow."""
    storage = to_storage(x)
    width = formats.width_of(dtype if is_small(dtype) else x.dtype)
    signed = dtype.startswith("int")

    def same(item: Any) -> Any:
        bits = item.astype("int32") & tirx.const((1 << width) - 1, "int32")
        half = tirx.const(1 << width - 1, "int32")
        return ((bits ^ half) - half if signed else bits).astype(storage_of(dtype))

    return from_storage(pw.pointwise(b, same, storage, name="bit_cast"), dtype)


def _to_integer(b: Builder, x: Value, dtype: str) -> Value:
    if not ew.is_float(x.dtype):
        return pw.pointwise(b, lambda item: formats.wrap(item, dtype), x, name="wrap")
    real = ew.cast(b, x, "float32") if x.dtype in pw.HALF_PRECISION else x

    def truncated(item: Any) -> Any:
        # LLVM leaves a cast undefined that overflows; NaN compares as smaller.
        bound = pw.like(item, float(1 << 30))
        within = tirx.Select(item > -bound, tirx.min(item, bound), -bound)
        return formats.wrap(within.astype("int32"), dtype)

    return pw.pointwise(b, truncated, real, name="truncate")

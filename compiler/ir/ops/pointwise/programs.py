"""Elementwise programs of scalar functions, for what Relax has no operator for."""

from collections.abc import Callable, Sequence
from typing import Any

from tvm import te, tirx

from compiler.ir.graph.builder import Builder
from compiler.ir.graph.values import Value
from compiler.ir.ops.pointwise import elementwise as ew
from compiler.ir.ops.pointwise.broadcast import align
from compiler.ir.shapes import extents as ex
from compiler.ir.shapes.extents import Extent

HALF_PRECISION = ("float16", "bfloat16")
"""Floats that functions are worked out for in float32."""


def pointwise(b: Builder, scalar: Callable[..., Any], *values: Value, name: str) -> Value:
    """`scalar` of the elements of broadcast values; its result decides the dtype."""
    tensors, shape = align(b, *values)

    def compute(*inputs: te.Tensor) -> te.Tensor:
        return te.compute(
            [ex.prim(e) for e in shape],
            lambda *i: scalar(*(_read_broadcast(t, i, shape) for t in inputs)),
            name=name,
        )

    return b.te(compute, *tensors, name=name, elementwise=True)


def _read_broadcast(tensor: te.Tensor, index: tuple[Any, ...], shape: Sequence[Extent]) -> Any:
    first = len(index) - len(tensor.shape)
    axes = zip(tensor.shape, shape[first:], index[first:], strict=True)
    return tensor(
        *(ex.prim(0) if _is_one(own) and not _is_one(joint) else i for own, joint, i in axes)
    )


def _is_one(extent: Extent) -> bool:
    return ex.plain(extent) == 1 if isinstance(ex.plain(extent), int) else False


def in_float(b: Builder, scalar: Callable[..., Any], *values: Value, name: str) -> Value:
    """`pointwise` of floats of one dtype: the 16-bit ones are computed in float32 and cast once."""
    dtype = values[0].dtype
    if dtype not in HALF_PRECISION:
        return pointwise(b, scalar, *values, name=name)
    wide = [ew.cast(b, value, "float32") for value in values]
    return ew.cast(b, pointwise(b, scalar, *wide, name=name), dtype)


def like(item: Any, value: float) -> Any:
    """A constant of the item's dtype."""
    return tirx.const(value, item.ty.dtype)

"""Reads rows of bytes (`relaxd.contract.bundle.byte_rows`) as float32."""

from collections.abc import Callable, Sequence
from functools import reduce
from operator import or_
from typing import Any

from tvm import tirx
from tvm.ir.prim import expr as prim

from compiler.tir.exprs import Expr, dtype_of, op_name, require_int, to_int64
from relaxd.contract.bundle.byte_rows import SCALE_BYTES

_BITS = "uint32"


def real(read: Callable[[Expr], Expr], index: Expr, size: int | Expr) -> Expr:
    """The number at `index` in a row of `size` numbers; read: the byte at a position of the row."""
    scale = [read(position) for position in to_int64([size + i for i in range(SCALE_BYTES)])]
    return read(index).astype("float32") * _scale(scale)


def size_of(shape: Sequence[Expr]) -> int:
    """How many numbers a row has in a tensor of rows, given the tensor's shape."""
    return require_int(shape[-1]) - SCALE_BYTES


def split(value: Any) -> tuple[Expr, Expr | None]:
    """The byte as float32 and the scale of what `real` made; any other value and None."""
    if isinstance(value, prim.Mul) and op_name(value.b) == "tirx.reinterpret":
        byte = value.a.value if isinstance(value.a, prim.Cast) else value.a
        if dtype_of(byte) == "int8":
            return value.a, value.b
    return value, None


def bytes_of(scale: Expr) -> list[Expr]:
    """The bytes that hold a scale, in order."""
    bits = tirx.reinterpret(_BITS, scale)
    return [
        (bits >> tirx.const(8 * position, _BITS)).astype("uint8").astype("int8")
        for position in range(SCALE_BYTES)
    ]


def _scale(stored: list[Expr]) -> Expr:
    """LLVM makes one load of the four."""
    parts = [
        tirx.reinterpret("uint8", byte).astype(_BITS) << tirx.const(8 * position, _BITS)
        for position, byte in enumerate(stored)
    ]
    return tirx.reinterpret("float32", reduce(or_, parts))

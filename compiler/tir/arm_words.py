"""Words of four bytes and of two 16-bit integers on ARM's processors without vectors (DSP
extension): bytes are widened by two, and multiplied by halves of a word.
"""

from typing import Any

from tvm import tirx
from tvm.ir.prim import expr as prim

from compiler.tir.exprs import Expr, const, dtype_of, load

BYTES = 4
"""Of a word."""


def load_word(buffer: Any, index: Expr) -> Expr:
    """Four neighbouring bytes as an int32."""
    return tirx.reinterpret("int32", load(buffer, [prim.Ramp(index, const(1), BYTES)]))


def widen_word(buffer: Any, index: Expr, zero: int = 0) -> tuple[Expr, Expr]:
    """Bytes 0 and 2 of a word, and 1 and 3, less a zero point, as 16-bit integers."""
    word, eight = load_word(buffer, index), tirx.const(8, "int32")
    # The instructions that widen turn their operand.
    turned = tirx.call_llvm_pure_intrin("int32", "llvm.fshr", word, word, eight)
    sign = "s" if dtype_of(buffer) == "int8" else "u"
    origin = tirx.const((-zero << 16) + (-zero & 0xFFFF), "int32")
    return (
        _widen(f"llvm.arm.{sign}xt", origin, word, zero),
        _widen(f"llvm.arm.{sign}xt", origin, turned, zero),
    )


def _widen(name: str, origin: Expr, halves: Expr, zero: int) -> Expr:
    if zero:
        return tirx.call_llvm_pure_intrin("int32", f"{name}ab16", origin, halves)
    return tirx.call_llvm_pure_intrin("int32", f"{name}b16", halves)


def multiply_half(total: Expr, lhs: Expr, rhs: Expr, high: bool) -> Expr:
    """The total plus the product of the lower or of the upper halves."""
    name = "llvm.arm.smlatt" if high else "llvm.arm.smlabb"
    return tirx.call_llvm_pure_intrin("int32", name, lhs, rhs, total)

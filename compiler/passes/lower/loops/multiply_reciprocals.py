"""Replaces divisions of float32 by constants by multiply-adds, which take a third of the time in
vectors of 512 bits on Emerald Rapids.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import tvm
import tvm_ffi
from tvm import tirx
from tvm_ffi import VisitInterrupt

from compiler.passes.framework.base import Phase
from compiler.passes.framework.programs import ProgramPass
from compiler.passes.framework.properties import Property
from compiler.tir.exprs import Expr, dtype_of
from compiler.tir.loops import with_body

_FEATURES = ("fma", "neon", "f")
"""What LLVM calls units that round a product and a sum once: of x86-64, AArch64 and RISC-V."""

_GREATEST = 2.0**60
"""Divisors up to here, from 1 on: the product with none of their reciprocals leaves float32's range
where the quotient does not.
"""


@dataclass(frozen=True)
class MultiplyReciprocals(ProgramPass):
    """Replaces float32 divisions by constants, where the target has multiply-adds.

    q = x * (1 / c) is off by less than 1.5 of its last place. The rest x - q * c is exact, and
    q + rest * (1 / c), rounded once, is x / c rounded to nearest, or the neighbour where x / c lies
    within 2^-23 of the last place of the middle between two (after Markstein, IA-64 and
    Elementary Functions, 2000). Below 2^-100 the rest is not exact, and the quotient may be off by
    the last place.
    """

    name = "multiply_reciprocals"
    phase = Phase.LOWERED_LOOPS
    requires = (Property.TARGETS,)

    def rewrite(self, func: tirx.PrimFunc) -> tirx.PrimFunc:
        """Rewrites a program if it has such divisions."""

        def divides(node: Any) -> VisitInterrupt | None:
            return None if _divisor(node) is None else VisitInterrupt(node)

        if tvm_ffi.structural_walk(func.body, (tirx.Div, divides), order="pre") is None:
            return func
        has_feature = tvm.get_global_func("target.target_has_feature")
        if not any(has_feature(name, func.attrs["target"]) for name in _FEATURES):
            return func
        return with_body(func, tvm_ffi.structural_map(func.body, [(tirx.Div, _multiply)]))


def _multiply(node: Any) -> Expr:
    divisor = _divisor(node)
    if divisor is None:
        return node
    x, q, rest = (tirx.Var(name, node.ty) for name in ("x", "q", "rest"))
    kind = dtype_of(node)
    by, less = (tirx.const(value, kind) for value in (np.float32(1) / divisor, -divisor))

    def multiply_add(lhs: Expr, rhs: Expr, added: Expr) -> Expr:
        return tirx.call_llvm_pure_intrin(kind, "llvm.fma", lhs, rhs, added)

    # Infinities and NaN have no rest, and the quotient of -0 is -0.
    zero = tirx.const(np.float32(0), kind)
    exact = tirx.Select(tirx.Or(rest < zero, rest > zero), multiply_add(rest, by, q), q)
    return tirx.Let(x, node.a, tirx.Let(q, x * by, tirx.Let(rest, multiply_add(q, less, x), exact)))


def _divisor(node: Any) -> Any:
    """The number by which float32 is divided; None of other divisions, and where the reciprocal
    is exact, which LLVM knows.
    """
    number = node.b.value if isinstance(node.b, tirx.Broadcast) else node.b
    if not isinstance(number, tirx.FloatImm) or not dtype_of(node).startswith("float32"):
        return None
    divisor = np.float32(number.value)
    if not 1 <= abs(divisor) <= _GREATEST or abs(math.frexp(divisor)[0]) == 0.5:
        return None
    return divisor

"""Replaces integer divisions that round down by those of processors, which round to zero.

The two agree where nothing is negative. What may be negative takes an instruction or two more.
"""

from dataclasses import dataclass
from functools import partial
from typing import Any

import tvm
import tvm_ffi
from tvm import tirx

from compiler.passes.framework.base import Phase
from compiler.passes.framework.programs import ProgramPass
from compiler.passes.framework.properties import Property
from compiler.passes.lower.loops.bounds import Bounds
from compiler.tir.exprs import Expr, as_int, dtype_of
from compiler.tir.loops import with_body


@dataclass(frozen=True)
class TruncateDivisions(ProgramPass):
    """Replaces integer divisions that round down by ones that round to zero.

    TVM's LowerIntrin does the same by proofs about every loop, branch and variable, which took nine
    tenths of the time in which the kernels of MobileNetV3-small were lowered.
    """

    name = "truncate_divisions"
    phase = Phase.LOWERED_LOOPS
    requires = (Property.FLAT_BUFFERS,)
    ensures = (Property.NO_FLOOR_DIVISIONS,)

    def rewrite(self, func: tirx.PrimFunc) -> tirx.PrimFunc:
        """Rewrites the divisions of a program."""
        return with_body(func, _truncate(func))


def _truncate(func: tirx.PrimFunc) -> Any:
    bounds = Bounds(func)
    rules = ((tirx.FloorDiv, partial(_quotient, bounds)), (tirx.FloorMod, partial(_rest, bounds)))

    def expression(node: Any, _mutator: Any) -> Expr:
        # Types of buffers keep their extents, as they are not computed.
        if isinstance(node, tvm.ir.Var):
            return node
        # Whether there is a remainder does not depend on how the quotient is rounded.
        compared = tvm_ffi.structural_map(node, [((tirx.EQ, tirx.NE), _compared)], order="pre")
        return tvm_ffi.structural_map(compared, rules)

    return tvm_ffi.structural_mutate(func.body, [(tvm.ir.Expr, expression)])


def _compared(node: Any) -> Expr:
    if isinstance(node.a, tirx.FloorMod) and _value(node.b) == 0:
        return type(node)(tirx.truncmod(node.a.a, node.a.b), node.b)
    return node


def _quotient(bounds: Bounds, node: Any) -> Expr:
    a, b = node.a, node.b
    if (bits := _power_of_two(b)) is not None:
        return a >> _constant(bits, a)
    if bounds.of(b)[0] >= 0:
        if bounds.of(a)[0] >= 0:
            return tirx.truncdiv(a, b)
        # The rest's sign, 0 or -1.
        return tirx.truncdiv(a, b) + _sign(tirx.truncmod(a, b))
    rest, quotient = tirx.Var("rest", node.ty), tirx.Var("quotient", node.ty)
    down = tirx.Select(_agree(rest, b), quotient, quotient - _constant(1, a))
    return tirx.Let(rest, tirx.truncmod(a, b), tirx.Let(quotient, tirx.truncdiv(a, b), down))


def _rest(bounds: Bounds, node: Any) -> Expr:
    a, b = node.a, node.b
    if (bits := _power_of_two(b)) is not None:
        return a & _constant((1 << bits) - 1, a)
    if bounds.of(b)[0] >= 0:
        rest = tirx.truncmod(a, b)
        return rest if bounds.of(a)[0] >= 0 else rest + (b & _sign(rest))
    rest = tirx.Var("rest", node.ty)
    return tirx.Let(rest, tirx.truncmod(a, b), tirx.Select(_agree(rest, b), rest, rest + b))


def _agree(rest: Expr, divisor: Expr) -> Expr:
    """Checks that a rest is of the divisor's sign, or nothing."""
    zero = _constant(0, rest)
    return tirx.Or(tirx.And(divisor >= zero, rest >= zero), tirx.And(divisor < zero, rest <= zero))


def _sign(expr: Expr) -> Expr:
    """-1 where a signed integer is negative, else 0."""
    return expr >> _constant(int(expr.ty.dtype.bits) - 1, expr)


def _constant(value: int, like: Expr) -> Expr:
    """A number, in each lane of a vector."""
    return tirx.const(value, dtype_of(like))


def _power_of_two(expr: Expr) -> int | None:
    """Which power of two an expression is; None of other numbers, and where run time decides."""
    size = _value(expr)
    if size is None or size <= 0 or size & (size - 1):
        return None
    return size.bit_length() - 1


def _value(expr: Expr) -> int | None:
    """The number that an expression is, in each lane of a vector."""
    return as_int(expr.value if isinstance(expr, tirx.Broadcast) else expr)

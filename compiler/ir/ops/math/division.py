"""Division of integers, by one rule that cannot trap: a divisor of zero ends the run with an error
that names the node, and the least integer divided by -1 wraps around to itself and leaves 0.

Processors trap at both, and LLVM takes them for undefined. Nothing is added where the divisor is
known to be neither 0 nor -1. Elsewhere it is replaced by 1 where it would trap, which is the rule's
result for the least integer, so that no order in which a kernel and the check of its divisors run
can trap.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from functools import partial
from typing import Any

import numpy as np
from tvm import relax, tirx

from compiler.errors import ImportFailed
from compiler.ir.graph import loop_programs
from compiler.ir.graph.builder import Builder
from compiler.ir.graph.values import Known, Value
from compiler.ir.ops.pointwise import elementwise as ew
from compiler.ir.ops.pointwise import programs as pw
from compiler.ir.ops.shape import layout
from compiler.ir.shapes import extents as ex
from compiler.ir.shapes.extents import Extent

LEAST = -(1 << 63)
"""The least extent."""
_MESSAGE = "integer division by zero"
MOST_DIVISOR = 9
"""Inputs that divide integers are drawn from 1 to here."""


class Direction(Enum):
    """The way in which a quotient is rounded: to zero, as in C, or down, as in Python."""

    TO_ZERO = "trunc"
    DOWN = "floor"


@dataclass(frozen=True)
class _Operation:
    """A quotient or a remainder by one rounding.

    relax: emits it; scalar: the same in a program; numpy, extents: of known arrays and of extents.
    """

    name: str
    relax: Callable[[relax.Expr, relax.Expr], relax.Expr] | None
    scalar: Callable[[Any, Any], Any]
    numpy: Callable[[Any, Any], Any]
    extents: Callable[[Extent, Extent], Extent]


def _fold_truncdiv(x: Any, y: Any) -> Any:
    quotient, rest = np.floor_divide(x, y), np.mod(x, y)
    return quotient + ((rest != 0) & ((x < 0) != (y < 0))).astype(quotient.dtype)


_QUOTIENTS = {
    # Relax's divide of integers is C's in the legalised program.
    Direction.TO_ZERO: _Operation(
        "divide", relax.op.divide, tirx.truncdiv, _fold_truncdiv, ex.truncdiv
    ),
    Direction.DOWN: _Operation(
        "floor_divide",
        relax.op.floor_divide,
        tirx.floordiv,
        np.floor_divide,
        ex.floordiv,
    ),
}
_REMAINDERS = {
    Direction.TO_ZERO: _Operation("truncmod", None, tirx.truncmod, np.fmod, ex.truncmod),
    Direction.DOWN: _Operation("floor_mod", relax.op.floor_mod, tirx.floormod, np.mod, ex.floormod),
}


def divide(b: Builder, x: Value, y: Value) -> Value:
    """x / y of one dtype: floats as IEEE has it, integers by `quotient` towards zero."""
    if ew.is_integer(x.dtype):
        return quotient(b, x, y, Direction.TO_ZERO)
    return ew.divide(b, x, y)


def quotient(
    b: Builder, x: Value, y: Value, direction: Direction, *, checked: bool = True
) -> Value:
    """x / y of integers of one dtype, broadcast.

    checked: a zero in y ends the run; otherwise x is the quotient there. Raises
    ImportFailed where y is constant and holds a zero.
    """
    return _divided(b, x, y, _QUOTIENTS[_direction_of(x, direction)], checked=checked)


def remainder(b: Builder, x: Value, y: Value, direction: Direction) -> Value:
    """x less its `quotient` times y; raises as `quotient` does."""
    return _divided(b, x, y, _REMAINDERS[_direction_of(x, direction)], checked=True)


def quotient_of_extents(b: Builder, p: Extent, q: Extent, direction: Direction) -> Extent:
    """`quotient` of two extents."""
    return _of_extents(b, p, q, _QUOTIENTS[direction])


def remainder_of_extents(b: Builder, p: Extent, q: Extent, direction: Direction) -> Extent:
    """`remainder` of two extents."""
    return _of_extents(b, p, q, _REMAINDERS[direction])


def _agree(p: Extent, q: Extent) -> ex.Scalar:
    return ex.both(ex.greater_equal(p, 0), ex.greater(q, 0))


def _direction_of(x: Value, direction: Direction) -> Direction:
    """TVM takes a truncated division of unsigned numbers for one of signed numbers."""
    return Direction.DOWN if x.dtype.startswith("uint") else direction


def _divided(b: Builder, x: Value, y: Value, operation: _Operation, *, checked: bool) -> Value:
    if isinstance(y, Known) and not y.symbolic and not np.all(y.data):
        raise ImportFailed("integers are divided by a constant zero", reason="division_by_zero")
    x, y = ew.as_numbers(x, y)
    if isinstance(x, Known) and isinstance(y, Known) and ew.is_folded(x, y):
        if x.symbolic or y.symbolic:
            each = partial(_of_extents, b, operation=operation)
            return ew.map_symbols(b, each, x, y, dtype=x.dtype)
        with np.errstate(all="ignore"):
            return Known(np.asarray(operation.numpy(x.data, y.data)).astype(x.data.dtype), x.dtype)
    zero, minus_one = _may_be(b, y, 0), _may_be(b, y, -1) and _may_be_least(b, x)
    if checked and zero:
        _check(b, x, y)
    if zero or minus_one or operation.relax is None:
        return _programmed(b, x, y, operation, zero=zero, minus_one=minus_one)
    return ew.binary(b, x, y, operation.relax)


def _may_be(b: Builder, y: Value, number: int) -> bool:
    """True if an element of a divisor may be the number."""
    if y.dtype.startswith("uint") and number < 0:
        return False
    if not isinstance(y, Known):
        return True
    if not y.symbolic:
        return bool(np.any(y.data == number))
    return any(b.facts.decide(ex.not_equal(item, number)) is not True for item in y.scalars())


def _may_be_least(b: Builder, x: Value) -> bool:
    """True if an element may be the least number of its dtype."""
    if not isinstance(x, Known):
        return True
    if not x.symbolic:
        return bool(np.any(x.data == np.iinfo(np.dtype(x.dtype)).min))
    return x.dtype != "int64" or any(b.facts.bounds(item)[0] <= LEAST for item in x.scalars())  # type: ignore[arg-type]


def _programmed(
    b: Builder, x: Value, y: Value, operation: _Operation, *, zero: bool, minus_one: bool
) -> Value:
    """A program of the operation, whose divisor is never what a processor traps at."""

    def scalar(p: Any, q: Any) -> Any:
        one = pw.like(q, 1)
        if minus_one:
            # TVM takes a comparison of an int32 with the least one for false.
            sign = pw.like(p, int(np.iinfo(np.dtype(x.dtype)).min))
            least = tirx.EQ(tirx.bitwise_xor(p, sign), pw.like(p, 0))
            q = tirx.Select(tirx.And(least, tirx.EQ(q, pw.like(q, -1))), one, q)
        if zero:
            q = tirx.Select(tirx.EQ(q, pw.like(q, 0)), one, q)
        return operation.scalar(p, q)

    return pw.pointwise(b, scalar, x, y, name=operation.name)


def _check(b: Builder, x: Value, y: Value) -> None:
    """Require of every run that no divisor is zero, unless nothing is divided."""
    count = b.facts.simplify(ex.prod(y.shape))
    flat = layout.reshape(b, y, [count])
    dividends = [ex.prim(extent) for extent in x.shape]

    def body(inputs: list[Any], outputs: list[Any]) -> None:
        zero_seen = loop_programs.cell("bool", False)
        with loop_programs.serial(count) as i:
            zero_seen[0] = tirx.Or(zero_seen[0], tirx.EQ(inputs[0][i], pw.like(inputs[0][i], 0)))
        for extent in dividends:
            zero_seen[0] = tirx.And(zero_seen[0], extent > ex.prim(0))
        number = ex.prim(b.checks.number(_MESSAGE))
        outputs[0][0] = tirx.Select(zero_seen[0], ex.prim(0), number)

    (verdict,) = loop_programs.program(b, body, [((1,), "int64")], flat, name="check_divisors")
    b.verify(verdict, _MESSAGE)


def _of_extents(b: Builder, p: Extent, q: Extent, operation: _Operation) -> Extent:
    """The operation, of a divisor that every run checks and that is no 0 where it is evaluated."""
    p, q = b.facts.simplify(p), b.facts.simplify(q)
    if operation is _QUOTIENTS[Direction.TO_ZERO] and b.facts.decide(_agree(p, q)) is True:
        operation = _QUOTIENTS[Direction.DOWN]  # which TVM simplifies further
    if isinstance(q, int):
        if q == 0:
            raise ImportFailed("an extent is divided by zero", reason="division_by_zero")
        return operation.extents(p, q)
    low, high = b.facts.bounds(q)
    if low >= 1 or (high is not None and high < -1):
        return operation.extents(p, q)
    if b.facts.decide(ex.not_equal(q, 0)) is not True:
        b.require(ex.not_equal(q, 0), _MESSAGE)
    if low >= 0:
        return operation.extents(p, b.symbol(ex.maximum(q, 1), "divisor"))
    wraps = ex.both(ex.equal(p, LEAST), ex.equal(q, -1))
    safe = ex.select(ex.either(ex.equal(q, 0), wraps), 1, q)
    divisor = b.known_integers(b.tensor(Known.of([safe])), "divisor").scalars()[0]
    return operation.extents(p, divisor)


def fmod(p: Any, q: Any) -> Any:
    """C's fmod of two scalars: TVM has an operator for it but no rule that compiles it."""
    dtype = p.ty.dtype
    return tirx.call_pure_extern(dtype, "fmod" if dtype == "float64" else "fmodf", p, q)

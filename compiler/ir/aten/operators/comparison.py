"""Comparisons, logic and bits."""

from collections.abc import Callable
from typing import Any

import numpy as np
from tvm import relax, tirx

from compiler.ir.aten.node import Node
from compiler.ir.aten.operands import operand, pair, scalar
from compiler.ir.aten.registry import op
from compiler.ir.graph.builder import Builder
from compiler.ir.graph.values import Value
from compiler.ir.ops.pointwise import elementwise as ew
from compiler.ir.ops.pointwise import programs as pw
from compiler.ir.ops.pointwise.shifts import shift
from compiler.ir.shapes import extents as ex


def _comparison(name: str, *aliases: str) -> None:
    @op(*aliases)
    def handler(b: Builder, node: Node) -> Value:
        return ew.compare(b, *pair(b, node), name)

    handler.__doc__ = f"Whether self is {name.replace('_', ' ')} other."


for _name, _aliases in (
    ("equal", ("eq",)), ("not_equal", ("ne", "not_equal")), ("less", ("lt", "less")),
    ("less_equal", ("le", "less_equal")),
    ("greater", ("gt", "greater")), ("greater_equal", ("ge", "greater_equal")),
):  # fmt: skip
    _comparison(_name, *_aliases)


def _logic(
    name: str, emit: Callable[..., Any], fold: Callable[..., Any], symbolic: Callable[..., Any]
) -> None:
    @op(f"logical_{name}")
    def handler(b: Builder, node: Node) -> Value:
        x, y = (operand(b, node, node.get(part), "bool") for part in ("self", "other"))
        return ew.binary(b, x, y, emit, numpy=fold, symbolic=symbolic)

    handler.__doc__ = f"Logical {name}; numbers count as true where they are not zero."


_logic("and", relax.op.logical_and, np.logical_and, ex.both)
_logic("or", relax.op.logical_or, np.logical_or, ex.either)
_logic("xor", relax.op.logical_xor, np.logical_xor, ex.not_equal)


@op("logical_not")
def logical_not(b: Builder, node: Node) -> Value:
    """True where self is zero or false."""
    return negate(b, ew.cast(b, node.value("self"), "bool"))


def negate(b: Builder, x: Value) -> Value:
    """not x, of bool."""
    return ew.unary(b, x, relax.op.logical_not, numpy=np.logical_not, symbolic=ex.negate)


def _bits(
    name: str,
    emit: Callable[..., Any],
    fold: Callable[..., Any],
    of_bool: Callable[..., Any],
    symbolic: Callable[..., Any],
) -> None:
    @op(f"bitwise_{name}", f"__{name}__")
    def handler(b: Builder, node: Node) -> Value:
        x, y = pair(b, node)
        if x.dtype == "bool":
            return ew.binary(b, x, y, of_bool, numpy=fold, symbolic=symbolic)
        return ew.binary(b, x, y, emit, numpy=fold)

    handler.__doc__ = f"Bitwise {name}; of bool, logical."


_bits("and", relax.op.bitwise_and, np.bitwise_and, relax.op.logical_and, ex.both)
_bits("or", relax.op.bitwise_or, np.bitwise_or, relax.op.logical_or, ex.either)
_bits("xor", relax.op.bitwise_xor, np.bitwise_xor, relax.op.logical_xor, ex.not_equal)


@op("bitwise_not")
def bitwise_not(b: Builder, node: Node) -> Value:
    """Every bit flipped; of bool, not."""
    x = node.value("self")
    return (
        negate(b, x)
        if x.dtype == "bool"
        else ew.unary(b, x, relax.op.bitwise_not, numpy=np.bitwise_not)
    )


@op("bitwise_left_shift", "__lshift__")
def left_shift(b: Builder, node: Node) -> Value:
    """self * 2 ** other of integers."""
    return shift(b, *pair(b, node), left=True)


@op("bitwise_right_shift", "__rshift__")
def right_shift(b: Builder, node: Node) -> Value:
    """self / 2 ** other of integers, rounded down."""
    return shift(b, *pair(b, node), left=False)


@op("isnan")
def isnan(b: Builder, node: Node) -> Value:
    """True where an element is not a number."""
    x = node.value("self")
    return (
        pw.pointwise(b, lambda v: tirx.isnan(_wide(v)), x, name="isnan")
        if ew.is_float(x.dtype)
        else _nowhere(b, x)
    )


@op("isinf")
def isinf(b: Builder, node: Node) -> Value:
    """True where an element is an infinity."""
    x = node.value("self")
    return (
        pw.pointwise(
            b,
            lambda v: tirx.EQ(tirx.abs(_wide(v)), pw.like(_wide(v), float("inf"))),
            x,
            name="isinf",
        )
        if ew.is_float(x.dtype)
        else _nowhere(b, x)
    )


@op("isfinite")
def isfinite(b: Builder, node: Node) -> Value:
    """True where an element is a number and no infinity."""
    x = node.value("self")
    if not ew.is_float(x.dtype):
        return negate(b, _nowhere(b, x))
    return pw.pointwise(
        b, lambda v: tirx.abs(_wide(v)) < pw.like(_wide(v), float("inf")), x, name="isfinite"
    )


def _wide(value: Any) -> Any:
    return value if value.ty.dtype == "float64" else value.astype("float32")


def _nowhere(b: Builder, x: Value) -> Value:
    return ew.compare(b, x, x, "not_equal")


@op("isclose")
def isclose(b: Builder, node: Node) -> Value:
    """True where |self - other| is finite and <= atol + rtol * |other|, or both are equal."""
    x, y = pair(b, node, floating=True)
    if node.bool("equal_nan", False):
        node.fail("isclose with equal_nan is not supported", reason="unsupported_form")
    bound = ew.add(
        b,
        scalar(b, node.float("atol"), x.dtype),
        ew.multiply(
            b, scalar(b, node.float("rtol"), x.dtype), ew.unary(b, y, relax.op.abs, numpy=np.abs)
        ),
    )
    apart = ew.unary(b, ew.subtract(b, x, y), relax.op.abs, numpy=np.abs)
    finite = ew.compare(b, apart, scalar(b, np.inf, x.dtype), "less")
    near = ew.binary(
        b,
        ew.compare(b, apart, bound, "less_equal"),
        finite,
        relax.op.logical_and,
        numpy=np.logical_and,
    )
    return ew.binary(
        b, near, ew.compare(b, x, y, "equal"), relax.op.logical_or, numpy=np.logical_or
    )

"""Comparisons, logic and bits."""

from collections.abc import Callable
from typing import Any

import numpy as np
from tvm import relax, tirx

from compiler.ir.aten.node import Node
from compiler.ir.aten.operands import operand, pair, scalar
from compiler.ir.aten.registry import op
from compiler.ir.aten.structure import Number, number_of
from compiler.ir.graph.builder import Builder
from compiler.ir.graph.values import Value
from compiler.ir.ops.math import reduce as rd
from compiler.ir.ops.pointwise import elementwise as ew
from compiler.ir.ops.pointwise import programs as pw
from compiler.ir.ops.pointwise.shifts import shift
from compiler.ir.ops.shape import layout
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
    """True where |self - other| is finite and <= atol + rtol * |other|, or both are equal; with
    `equal_nan` also where both are NaN.
    """
    x, y = pair(b, node)
    if x.dtype == "bool":
        x, y = (ew.cast(b, item, "float32") for item in (x, y))
    close = ew.compare(b, x, y, "equal")
    if node.bool("equal_nan", False) and ew.is_float(x.dtype):
        left, right = (ew.compare(b, item, item, "not_equal") for item in (x, y))
        close = _logical(b, close, _logical(b, left, right, "and"), "or")
    rtol, atol = node.float("rtol"), node.float("atol")
    if rtol == atol == 0:
        return close
    # Integers are subtracted as such: float32 has no odd ones beyond 2**24.
    work = x.dtype if ew.is_float(x.dtype) else "float32"
    apart = ew.cast(b, _magnitude(b, ew.subtract(b, x, y)), work)
    size = _magnitude(b, ew.multiply(b, scalar(b, rtol, work), ew.cast(b, y, work)))
    bound = ew.add(b, scalar(b, atol, work), size)
    finite = ew.compare(b, apart, scalar(b, np.inf, work), "less")
    near = _logical(b, ew.compare(b, apart, bound, "less_equal"), finite, "and")
    return _logical(b, near, close, "or")


@op("allclose")
def allclose(b: Builder, node: Node) -> Any:
    """True if `isclose` is, of every element."""
    close = isclose(b, node)
    every = rd.reduce(b, close, "min", list(range(len(close.shape))), False)
    return number_of(b, every, Number.BOOL)


@op("equal")
def equal(b: Builder, node: Node) -> Any:
    """True for tensors of one shape all of whose elements are equal; a tensor is equal to itself,
    NaN or not.
    """
    if node.ref("self") is node.ref("other"):
        return True
    x, y = node.value("self"), node.value("other")
    if len(x.shape) != len(y.shape):
        return False
    alike: Any = True
    for have, want in zip(x.shape, y.shape, strict=True):
        alike = ex.both(alike, layout.settle(b, ex.equal(have, want)))
    if alike is False:
        return False
    for axis, ends in enumerate(zip(x.shape, y.shape, strict=True)):
        end = b.facts.simplify(ex.minimum(*ends))
        x, y = (layout.strided_slice(b, value, axis, 0, end, 1) for value in (x, y))
    same = ew.compare(b, x, y, "equal")
    every = rd.reduce(b, same, "min", list(range(len(same.shape))), False)
    return ex.both(alike, number_of(b, every, Number.BOOL))


def _magnitude(b: Builder, x: Value) -> Value:
    return ew.unary(b, x, relax.op.abs, numpy=np.abs)


def _logical(b: Builder, x: Value, y: Value, name: str) -> Value:
    name = f"logical_{name}"
    return ew.binary(b, x, y, getattr(relax.op, name), numpy=getattr(np, name))

"""ONNX arithmetic, comparison and logic."""

from functools import reduce
from typing import Any

import numpy as np
from tvm import relax, tirx

from compiler.ir.graph.builder import Builder
from compiler.ir.graph.values import Known, Value
from compiler.ir.onnx.indices import limit_values
from compiler.ir.onnx.node import Node
from compiler.ir.onnx.registry import op
from compiler.ir.ops.math import division
from compiler.ir.ops.math.division import MOST_DIVISOR
from compiler.ir.ops.pointwise import elementwise as ew
from compiler.ir.ops.pointwise import extremes
from compiler.ir.ops.pointwise import programs as pw
from compiler.ir.shapes import extents as ex


@op("Add", since=7)
def add(b: Builder, node: Node) -> Value:
    """A + B."""
    return ew.add(b, node.value(0), node.value(1))


@op("Sub", since=7)
def sub(b: Builder, node: Node) -> Value:
    """A - B."""
    return ew.subtract(b, node.value(0), node.value(1))


@op("Mul", since=7)
def mul(b: Builder, node: Node) -> Value:
    """A * B."""
    return ew.multiply(b, node.value(0), node.value(1))


@op("Div", since=7)
def div(b: Builder, node: Node) -> Value:
    """A / B, truncated for integers."""
    _limit_divisor(b, node)
    return division.divide(b, node.value(0), node.value(1))


def _limit_divisor(b: Builder, node: Node) -> None:
    """State that the second input divides integers: sample inputs hold no zero."""
    if ew.is_integer(node.value(1).dtype):
        limit_values(b, node, 1, 1, MOST_DIVISOR)


@op("Equal", since=7)
def equal(b: Builder, node: Node) -> Value:
    """A == B."""
    return ew.compare(b, node.value(0), node.value(1), "equal")


@op("Less", since=7)
def less(b: Builder, node: Node) -> Value:
    """A < B."""
    return ew.compare(b, node.value(0), node.value(1), "less")


@op("LessOrEqual", since=12)
def less_or_equal(b: Builder, node: Node) -> Value:
    """A <= B."""
    return ew.compare(b, node.value(0), node.value(1), "less_equal")


@op("Greater", since=7)
def greater(b: Builder, node: Node) -> Value:
    """A > B."""
    return ew.compare(b, node.value(0), node.value(1), "greater")


@op("GreaterOrEqual", since=12)
def greater_or_equal(b: Builder, node: Node) -> Value:
    """A >= B."""
    return ew.compare(b, node.value(0), node.value(1), "greater_equal")


@op("And", since=7)
def logical_and(b: Builder, node: Node) -> Value:
    """A and B."""
    return ew.binary(
        b,
        node.value(0),
        node.value(1),
        relax.op.logical_and,
        numpy=np.logical_and,
        symbolic=ex.both,
    )


@op("Or", since=7)
def logical_or(b: Builder, node: Node) -> Value:
    """A or B."""
    return ew.binary(
        b,
        node.value(0),
        node.value(1),
        relax.op.logical_or,
        numpy=np.logical_or,
        symbolic=ex.either,
    )


@op("Xor", since=7)
def logical_xor(b: Builder, node: Node) -> Value:
    """A xor B."""
    return ew.binary(
        b,
        node.value(0),
        node.value(1),
        relax.op.logical_xor,
        numpy=np.logical_xor,
        symbolic=ex.not_equal,
    )


@op("Not")
def logical_not(b: Builder, node: Node) -> Value:
    """not X."""
    return ew.unary(
        b, node.value(0), relax.op.logical_not, numpy=np.logical_not, symbolic=ex.negate
    )


@op("Where", since=9)
def where(b: Builder, node: Node) -> Value:
    """X where the condition holds, else Y."""
    return ew.where(b, node.value(0), node.value(1), node.value(2))


@op("Max", since=8)
def maximum(b: Builder, node: Node) -> Value:
    """Elementwise greatest of all inputs; a NaN wins."""
    return reduce(lambda x, y: extremes.greater(b, x, y), _inputs(node))


@op("Min", since=8)
def minimum(b: Builder, node: Node) -> Value:
    """Elementwise least of all inputs; a NaN wins."""
    return reduce(lambda x, y: extremes.lesser(b, x, y), _inputs(node))


@op("Sum", since=8)
def total(b: Builder, node: Node) -> Value:
    """Elementwise sum of all inputs."""
    return _sum(b, _inputs(node))


def _sum(b: Builder, values: list[Value]) -> Value:
    return reduce(lambda x, y: ew.add(b, x, y), values)


@op("Mean", since=8)
def mean(b: Builder, node: Node) -> Value:
    """Elementwise mean of all inputs."""
    values = _inputs(node)
    return division.divide(b, _sum(b, values), Known.of(np.asarray(len(values)), values[0].dtype))


def _inputs(node: Node) -> list[Value]:
    return [node.value(index) for index in range(len(node.inputs))]


@op("Pow", since=7)
def power(b: Builder, node: Node) -> Value:
    """X to the power Y, in X's dtype; small constant exponents become products."""
    x, y = node.value(0), node.value(1)
    exponent = (
        y.data.reshape(-1)[0]
        if isinstance(y, Known) and not y.symbolic and y.data.size == 1
        else None
    )
    if exponent is not None and len(y.shape) <= len(x.shape) and not isinstance(x, Known):
        if exponent == 2:
            return ew.multiply(b, x, x)
        if exponent == 3:
            return ew.multiply(b, ew.multiply(b, x, x), x)
        if exponent == 0.5 and ew.is_float(x.dtype):
            return ew.unary(b, x, relax.op.sqrt)
    if ew.is_integer(x.dtype):
        return ew.cast(b, _pow(b, ew.cast(b, x, "float64"), ew.cast(b, y, "float64")), x.dtype)
    return _pow(b, x, ew.cast(b, y, x.dtype))


def _pow(b: Builder, x: Value, y: Value) -> Value:
    if x.dtype == "bfloat16":
        return pw.in_float(b, tirx.power, x, y, name="power")
    return ew.binary(b, x, y, relax.op.power, numpy=np.power)


@op("Mod", since=10)
def mod(b: Builder, node: Node) -> Value:
    """A mod B: with the sign of B (fmod=0), or of A as C's fmod and % (fmod=1)."""
    x, y = node.value(0), node.value(1)
    truncated = bool(node.attr("fmod", 0))
    if ew.is_float(x.dtype):
        return pw.in_float(b, division.fmod if truncated else _floor_mod, x, y, name="mod")
    _limit_divisor(b, node)
    direction = division.Direction.TO_ZERO if truncated else division.Direction.DOWN
    return division.remainder(b, x, y, direction)


def _floor_mod(p: Any, q: Any) -> Any:
    """Python's remainder: moved to the divisor's side, a zero with the divisor's sign."""
    rest = division.fmod(p, q)
    zero = pw.like(p, 0)
    astray = tirx.Or(tirx.And(rest > zero, q < zero), tirx.And(rest < zero, q > zero))
    return _signed(tirx.Select(astray, rest + q, rest), q)


def _signed(p: Any, q: Any) -> Any:
    """p, of q's sign or zero, with q's sign."""
    dtype = p.ty.dtype
    return tirx.call_pure_extern(dtype, "copysign" if dtype == "float64" else "copysignf", p, q)

"""Less common elementwise functions."""

import math
from collections.abc import Callable
from typing import Any

from tvm import tirx

from compiler.ir.aten.node import Node
from compiler.ir.aten.operands import pair, to_float
from compiler.ir.aten.registry import op
from compiler.ir.graph.builder import Builder
from compiler.ir.graph.values import Value
from compiler.ir.ops.pointwise import activation as fn
from compiler.ir.ops.pointwise import elementwise as ew
from compiler.ir.ops.pointwise import programs as pw


def _register(name: str, function: Callable[[Any], Any], *aliases: str) -> None:
    @op(name, *aliases)
    def handler(b: Builder, node: Node) -> Value:
        return pw.in_float(b, function, to_float(b, node.value("self")), name=name)

    handler.__doc__ = f"{name}, elementwise."


def _two(name: str, function: Callable[[Any, Any], Any], *aliases: str) -> None:
    @op(name, *aliases)
    def handler(b: Builder, node: Node) -> Value:
        other = "values" if "values" in node.names else "other"
        return pw.in_float(
            b, function, *pair(b, node, "self", other, floating=name != "heaviside"), name=name
        )

    handler.__doc__ = f"{name} of two operands."


def _sinc(v: Any) -> Any:
    turn = v * pw.like(v, math.pi)
    zero = tirx.EQ(v, pw.like(v, 0))
    return tirx.Select(zero, pw.like(v, 1), tirx.sin(turn) / tirx.Select(zero, pw.like(v, 1), turn))


def _xlogy(p: Any, q: Any) -> Any:
    zero = pw.like(p, 0)
    return tirx.Select(tirx.isnan(q), q, tirx.Select(tirx.EQ(p, zero), zero, p * tirx.log(q)))


def _hypot(p: Any, q: Any) -> Any:
    """Infinite where one side is, whatever the other."""
    infinity = pw.like(p, math.inf)
    endless = tirx.Or(tirx.EQ(tirx.abs(p), infinity), tirx.EQ(tirx.abs(q), infinity))
    return tirx.Select(endless, infinity, tirx.sqrt(p * p + q * q))


def _heaviside(p: Any, q: Any) -> Any:
    zero, one = pw.like(p, 0), pw.like(p, 1)
    return tirx.Select(tirx.EQ(p, zero), q, tirx.Select(p > zero, one, zero))


def _is_infinite(sign: int) -> Callable[[Any], Any]:
    return lambda v: tirx.EQ(v, pw.like(v, sign * math.inf))


_register("erfc", lambda v: pw.like(v, 1) - tirx.erf(v), "special_erfc")
_register("deg2rad", lambda v: v * pw.like(v, math.pi / 180))
_register("rad2deg", lambda v: v * pw.like(v, 180 / math.pi))
_register("sinc", _sinc, "special_sinc")
_two("hypot", _hypot)
_two("logaddexp", fn.logaddexp(math.e))
_two("logaddexp2", fn.logaddexp(2))
_two("xlogy", _xlogy, "special_xlogy")
_two("heaviside", _heaviside)


def _infinite(name: str, sign: int) -> None:
    @op(name)
    def handler(b: Builder, node: Node) -> Value:
        x = to_float(b, node.value("self"))
        return pw.pointwise(
            b,
            _is_infinite(sign),
            ew.cast(b, x, "float32") if x.dtype in pw.HALF_PRECISION else x,
            name=name,
        )

    handler.__doc__ = (
        f"Whether each element is the {'positive' if sign > 0 else 'negative'} infinity."
    )


_infinite("isposinf", 1)
_infinite("isneginf", -1)

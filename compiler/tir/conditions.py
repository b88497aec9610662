"""Conditions on the positions of a loop nest: what they are of, and where on an axis they hold."""

from collections.abc import Iterator

import tvm
from tvm import tirx
from tvm.ir.prim import expr as prim

from compiler.tir.exprs import Expr, as_int, const

Limits = tuple[Expr, Expr]
"""Positions from the first up to but not including the second."""


def conjuncts(condition: Expr) -> Iterator[Expr]:
    """The conditions that have to hold together."""
    if isinstance(condition, prim.And):
        yield from conjuncts(condition.a)
        yield from conjuncts(condition.b)
    elif as_int(condition) != 1:
        yield condition


def slack_of(condition: Expr) -> Expr | None:
    """An integer that is at least 0 exactly where the comparison holds."""
    match condition:
        case prim.LE():
            return condition.b - condition.a
        case prim.LT():
            return condition.b - condition.a - 1
        case prim.GE():
            return condition.a - condition.b
        case prim.GT():
            return condition.a - condition.b - 1
    return None


def limits_along(conditions: list[Expr], var: tvm.ir.Var, extent: Expr) -> Limits | None:
    """Where along the axis all conditions hold, within 0 and its extent; None where that is no run
    of neighbouring positions that is known from expressions without the axis.
    """
    first: Expr = const(0)
    last = extent
    for condition in conditions:
        slack = slack_of(condition)
        parts = [] if slack is None else list(tvm.sym.detect_linear_equation(slack, [var]))
        step = as_int(parts[0]) if len(parts) == 2 else None
        if not step:
            return None
        if step > 0:
            first = tirx.max(first, tirx.ceildiv(-parts[1], const(step)))
        else:
            last = tirx.min(last, tirx.floordiv(parts[1], const(-step)) + 1)
    simplify = tvm.sym.Analyzer().simplify
    first = simplify(tirx.min(first, extent))
    return first, simplify(tirx.max(last, first))

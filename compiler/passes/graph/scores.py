"""Finds the matmul that scores of an attention come from, before a softmax takes them."""

from collections.abc import Callable
from typing import Any

import tvm
from tvm import relax

from compiler.passes.cpu.families.attention.program import CHANGES, Change
from compiler.tir.exprs import op_name

Bound = Callable[[Any], Any]
"""The call that a variable is bound to, None for anything else."""


def scores_of(bound: Bound, expr: Any, ty: Any, changes: list[Change]) -> Any:
    """The variable of the matmul that `expr`, of type `ty`, comes from by elementwise changes, None
    without one; appends the changes, the last first.
    """
    known: dict[Any, bool] = {}
    while True:
        call = bound(expr)
        name = op_name(call)
        if (
            call is None
            or (name != "relax.matmul" and name not in CHANGES)
            or not _same_shape(call.ty, ty)
        ):
            return None
        if name == "relax.matmul":
            return expr
        inner = [arg for arg in call.args if _leads_to_matmul(bound, arg, ty, known)]
        # An operand of higher rank would broadcast the scores, which then have another shape.
        if len(inner) != 1 or any(arg.ty.ndim > ty.ndim for arg in call.args):
            return None
        changes.append(Change(name, [None if arg.same_as(inner[0]) else arg for arg in call.args]))
        expr = inner[0]


def _leads_to_matmul(bound: Bound, expr: Any, ty: Any, known: dict[Any, bool]) -> bool:
    """Whether `expr` is a matmul after changes, all of type `ty`; `known` keeps the answers.

    Without it operands that are read twice would be searched twice, and theirs four times.
    """
    call = bound(expr)
    if call is None or not _same_shape(call.ty, ty):
        return False
    if expr not in known:
        known[expr] = op_name(call) == "relax.matmul" or (
            op_name(call) in CHANGES
            and any(_leads_to_matmul(bound, arg, ty, known) for arg in call.args)
        )
    return known[expr]


def _same_shape(one: Any, other: Any) -> bool:
    left, right = getattr(one, "shape", None), getattr(other, "shape", None)
    if (
        not isinstance(left, relax.ShapeExpr)
        or not isinstance(right, relax.ShapeExpr)
        or one.ndim != other.ndim
    ):
        return False
    return all(map(tvm.sym.Analyzer().can_prove_equal, left.values, right.values))

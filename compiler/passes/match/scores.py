"""Finds the softmax of an attention, and the matmul that its scores come from."""

from collections.abc import Callable
from typing import Any

import numpy as np
import tvm
from tvm import relax, tirx

from compiler.passes.cpu.families.attention.program import CHANGES, Change
from compiler.tir.exprs import op_name
from compiler.tir.stages import read_program

Bound = Callable[[Any], Any]
"""The call that a variable is bound to, None for anything else."""


def softmax_of(module: tvm.IRModule, bound: Bound, expr: Any) -> tuple[Any, bool] | None:
    """The softmax over the last axis that the weights `expr` come from, and whether zeros take the
    place of those that are NaN, as PyTorch's exporter writes scaled_dot_product_attention with a
    mask; None for anything else.
    """
    call = bound(expr)
    safe = op_name(call) == "relax.where"
    if safe:
        expr = call.args[2]
        filled = _same_shape(call.ty, expr.ty) and _is_zero(call.args[1])
        if not filled or not _are_nan(module, bound, call.args[0], expr):
            return None
        call = bound(expr)
    if op_name(call) != "relax.nn.softmax":
        return None
    return (call, safe) if int(call.attrs.axis) in (-1, call.ty.ndim - 1) else None


def _is_zero(expr: Any) -> bool:
    """True if `expr` is a constant of one element, 0 and not -0."""
    if not isinstance(expr, tvm.ir.GenericConst) or not hasattr(expr.value, "numpy"):
        return False
    value = expr.value.numpy()
    return bool(value.size == 1 and not value.any() and not np.signbit(value).any())


def _are_nan(module: tvm.IRModule, bound: Bound, expr: Any, weights: Any) -> bool:
    """True if `expr` says which of the weights are NaN, as an operator or as the program that the
    importers write for it.
    """
    call = bound(expr)
    if op_name(call) == "relax.isnan":
        return bool(call.args[0].same_as(weights))
    return (
        op_name(call) == "relax.call_tir"
        and len(call.args[1].fields) == 1
        and bool(call.args[1].fields[0].same_as(weights))
        and _is_nan_test(module[call.args[0]])
    )


def _is_nan_test(func: Any) -> bool:
    """True if a program says of each element of its input whether it is NaN."""
    program = read_program(func) if isinstance(func, tirx.PrimFunc) else None
    if program is None or len(program.stages) != 1:
        return False
    (stage,) = program.stages
    if stage.init is not None or op_name(stage.value) != "tirx.isnan":
        return False
    read = stage.value.args[0]
    variables = [axis.var for axis in stage.axes]
    return isinstance(read, tvm.ir.TensorLoad) and all(
        len(indices) == len(variables) and all(map(tvm.ir.Expr.same_as, indices, variables))
        for indices in (stage.indices, read.indices)
    )


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
    """True if `expr` is a matmul after changes, all of type `ty`; `known` keeps the answers.

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


def _same_shape(lhs: Any, rhs: Any) -> bool:
    left, right = getattr(lhs, "shape", None), getattr(rhs, "shape", None)
    if (
        not isinstance(left, relax.ShapeExpr)
        or not isinstance(right, relax.ShapeExpr)
        or lhs.ndim != rhs.ndim
    ):
        return False
    return all(map(tvm.sym.Analyzer().can_prove_equal, left.values, right.values))

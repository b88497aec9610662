"""Bindings of Relax functions, in the order in which they are computed, and what each needs."""

from collections.abc import Iterator
from typing import Any

import tvm
import tvm_ffi
from tvm import relax


def bindings_within(body: relax.Expr) -> Iterator[tuple[relax.Var, relax.Expr]]:
    """Each variable and its value; those of both branches of a choice come before the choice."""
    if not isinstance(body, relax.SeqExpr):
        return
    for block in body.blocks:
        for binding in block.bindings:
            value = binding.value
            if isinstance(value, relax.If):
                yield from bindings_within(value.true_branch)
                yield from bindings_within(value.false_branch)
            yield binding.var, value


def dims_defined(binding: Any) -> set[Any]:
    """The dims that a binding may define."""
    return (
        set(relax.analysis.definable_tir_vars_in_type(binding.ty))
        if isinstance(binding, relax.MatchCast)
        else set()
    )


def used_by(binding: Any) -> set[Any]:
    """The variables and dims that a binding needs."""
    used: set[Any] = set(relax.analysis.tir_vars_in_type(binding.var.ty)) - dims_defined(binding)
    tvm_ffi.structural_walk(binding.value, (tvm.ir.Var, used.add), order="post")
    return used - {binding.var}

"""Tests for values that can be computed for neighbouring positions in one vector."""

from typing import Any

import tvm
from tvm.ir.prim import expr as prim

from compiler.tir.exprs import Expr, as_int, dtype_of, is_choice, nodes, op_name, uses
from compiler.tir.flat import stride

# The first four become polynomials (compiler.tir.vecmath); LLVM has vector forms of the others.
_VECTOR_CALLS = frozenset(f"tirx.{name}" for name in (
    "exp", "erf", "tanh", "sigmoid",
    "sqrt", "rsqrt", "floor", "ceil", "fabs", "round", "trunc", "nearbyint", "log", "reinterpret",
    "fma",
))  # fmt: skip


def is_vectorizable(value: Expr, var: Any) -> bool:
    """True if `value` can be computed for neighbouring values of `var` in one vector: every load is
    contiguous or the same for all lanes.
    """
    return not any(is_scalar(node, var) for node in nodes(value))


def is_scalar(node: Expr, var: Any) -> bool:
    """True if this node makes `value` of `is_vectorizable` need one lane at a time."""
    if isinstance(node, tvm.ir.TensorLoad):
        # A vector of booleans is a bit each in LLVM, but a byte each in memory.
        return as_int(stride(node.indices[0], var)) not in (0, 1) or dtype_of(node) == "bool"
    if isinstance(node, tvm.ir.Call) and uses(node, var):
        # A choice evaluates one side only, which lanes that differ cannot.
        if is_choice(node):
            return uses(node.args[0], var)
        return op_name(node) not in _VECTOR_CALLS
    if isinstance(node, (prim.FloorDiv, prim.FloorMod, prim.Div, prim.Mod)):
        # No processor here divides integers in vectors: LLVM would take the lanes apart.
        return not dtype_of(node).startswith(("float", "bfloat")) and uses(node, var)
    return False

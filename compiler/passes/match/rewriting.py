"""Constants that rewriters of Relax graphs look up, and functions that they replace."""

from collections import Counter
from typing import Any

import tvm
from tvm import relax

from compiler.ir.graph.blocks import with_reads_visible
from compiler.passes.match import op_patterns
from compiler.tir.exprs import op_name

FUSABLE = {op_patterns.MARK: op_patterns.FUSABLE}
"""The attribute of a tensor program to which FuseOps may join the elementwise operators behind
it.
"""

MOVING = frozenset(
    f"relax.{name}"
    for name in ("strided_slice", "reshape", "squeeze", "expand_dims", "permute_dims", "flatten")
)
"""Operators that keep elements as they are."""


def rewrite_functions(rewriter: Any, module: tvm.IRModule) -> tvm.IRModule:
    """Rewrites every Relax function of the module with `rewriter`, a mutator made for it, which may
    bind a value to what another block computes.
    """
    for gvar, func in module.functions.items():
        if isinstance(func, relax.Function):
            function = with_reads_visible(rewriter.visit_expr(func))
            rewriter.builder_.update_func(gvar, function)
    return rewriter.builder_.get()


def reads_of(module: tvm.IRModule) -> Counter[Any]:
    """How many calls and tuples of the Relax functions read each variable, one by one."""
    reads: Counter[Any] = Counter()

    def count(expr: Any) -> None:
        operands = getattr(expr, "args", None) or getattr(expr, "fields", None) or ()
        reads.update(arg for arg in operands if isinstance(arg, relax.Var))

    for function in module.functions.values():
        if isinstance(function, relax.Function):
            relax.analysis.post_order_visit(function, count)
    return reads


def rebind(rewriter: Any, var: Any, value: Any) -> None:
    """Binds `var` to `value`, as an output of the dataflow block if `var` is one."""
    builder = rewriter.builder_
    if builder.current_block_is_dataflow() and not isinstance(var, relax.DataflowVar):
        value = builder.emit_output(value, var.name)
    bound = value if isinstance(value, relax.Var) else builder.emit(value, var.name)
    rewriter.set_var_remap(var, bound)


def constant_of(rewriter: Any, expr: Any) -> Any:
    """The constant that `expr` is, or that it is a variable for; else None."""
    if isinstance(expr, relax.Var):
        expr = rewriter.lookup_binding(expr)
    return expr if isinstance(expr, tvm.ir.GenericConst) and hasattr(expr.value, "numpy") else None


def find_float32_source(rewriter: Any, expr: Any) -> Any:
    """The float32 value that `expr` is rounded to bfloat16 from, as `RoundOperands` writes that, in
    the shape of `expr`; None for what is not rounded.
    """
    bound: Any = rewriter.lookup_binding(expr) if isinstance(expr, relax.Var) else expr
    if isinstance(bound, relax.Var):
        return find_float32_source(rewriter, bound)
    if op_name(bound) in MOVING:
        below = find_float32_source(rewriter, bound.args[0])
        if below is None:
            return None
        moved = relax.Call(bound.op, [below, *bound.args[1:]], bound.attrs, bound.ty_args)
        return rewriter.builder_.emit(moved)
    if op_name(bound) != "relax.astype" or str(bound.ty.dtype) != "float32":
        return None
    bfloats: Any = bound.args[0]
    bfloats = rewriter.lookup_binding(bfloats) if isinstance(bfloats, relax.Var) else bfloats
    if op_name(bfloats) != "relax.astype" or str(bfloats.ty.dtype) != "bfloat16":
        return None
    wide = bfloats.args[0]
    return wide if str(wide.ty.dtype) == "float32" else None


def is_weight(expr: Any) -> bool:
    """True if `expr` is a constant float32 matrix that is not empty."""
    return (
        expr is not None
        and str(expr.ty.dtype) == "float32"
        and len(expr.value.shape) == 2
        and all(expr.value.shape)
    )

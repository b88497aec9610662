"""The base of passes that rewrite calls of Relax graphs, and what they look up."""

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


class CallRewriter(relax.PyExprMutator):  # type: ignore[misc]
    """The base of what rewrites calls, each behind its operands. A subclass overrides `rewrite`,
    and is decorated by `relax.expr_functor.mutator`.

    module: what is rewritten.
    """

    def __init__(self, module: tvm.IRModule) -> None:
        super().__init__(module)
        self.module = module

    def visit_call_(self, call: Any) -> Any:
        """Rewrites a call whose operands are rewritten."""
        return self.rewrite(self.visit_expr_post_order(call))

    def rewrite(self, call: Any) -> Any:
        """The expression in place of a call, or the call itself."""
        return call

    def value_of(self, expr: Any) -> Any:
        """The expression that a variable is bound to, None of a parameter; else `expr` itself."""
        return self.lookup_binding(expr) if isinstance(expr, relax.Var) else expr

    def constant_of(self, expr: Any) -> Any:
        """The constant that `expr` is, or that it is a variable for; else None."""
        value = self.value_of(expr)
        is_constant = isinstance(value, tvm.ir.GenericConst) and hasattr(value.value, "numpy")
        return value if is_constant else None

    def rebind(self, var: Any, value: Any) -> None:
        """Binds `var` to `value`, as an output of the dataflow block if `var` is one."""
        if self.builder_.current_block_is_dataflow() and not isinstance(var, relax.DataflowVar):
            value = self.builder_.emit_output(value, var.name)
        bound = value if isinstance(value, relax.Var) else self.builder_.emit(value, var.name)
        self.set_var_remap(var, bound)

    def find_float32_source(self, expr: Any) -> Any:
        """The float32 value that `expr` is rounded to bfloat16 from, as `RoundOperands` writes
        that, in the shape of `expr`; None for what is not rounded.
        """
        bound = self.value_of(expr)
        if isinstance(bound, relax.Var):
            return self.find_float32_source(bound)
        if op_name(bound) in MOVING:
            below = self.find_float32_source(bound.args[0])
            if below is None:
                return None
            moved = relax.Call(bound.op, [below, *bound.args[1:]], bound.attrs, bound.ty_args)
            return self.builder_.emit(moved)
        if op_name(bound) != "relax.astype" or str(bound.ty.dtype) != "float32":
            return None
        bfloats = self.value_of(bound.args[0])
        if op_name(bfloats) != "relax.astype" or str(bfloats.ty.dtype) != "bfloat16":
            return None
        wide = bfloats.args[0]
        return wide if str(wide.ty.dtype) == "float32" else None


def rewrite_functions(rewriter: Any) -> tvm.IRModule:
    """Rewrites every Relax function of the module that a `CallRewriter` was made for, which may
    bind a value to what another block computes.
    """
    for gvar, func in rewriter.module.functions.items():
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


def is_weight(expr: Any) -> bool:
    """True if `expr` is a constant float32 matrix that is not empty."""
    return (
        expr is not None
        and str(expr.ty.dtype) == "float32"
        and len(expr.value.shape) == 2
        and all(expr.value.shape)
    )

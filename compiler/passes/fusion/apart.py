"""Has single calls of tensor programs fused otherwise than the programs' marks say."""

from collections.abc import Set
from typing import Any

import tvm
from tvm import relax

from compiler.passes.match.op_patterns import MARK


def marked_apart(module: tvm.IRModule, variables: Set[Any], mark: int) -> tvm.IRModule:
    """Gives each call that is bound to one of the variables a copy of its PrimFunc with that mark
    of `op_patterns`; returns the same module if there are none.
    """
    if not variables:
        return module
    rewriter = _Apart(module, variables, mark)
    for gvar, func in module.functions.items():
        if isinstance(func, relax.Function):
            rewriter.builder_.update_func(gvar, rewriter.visit_expr(func))
    return rewriter.builder_.get()


@relax.expr_functor.mutator
class _Apart(relax.PyExprMutator):  # type: ignore[misc]
    def __init__(self, module: tvm.IRModule, variables: Set[Any], mark: int) -> None:
        super().__init__(module)
        self._module, self._variables, self._mark = module, variables, mark
        self._now = False

    def visit_var_binding_(self, binding: relax.VarBinding) -> None:
        """Remembers for the call in it whether it is to stay apart."""
        self._now = binding.var in self._variables
        super().visit_var_binding_(binding)

    def visit_call_(self, op: relax.Call) -> relax.Expr:
        """Calls the copy."""
        apart, self._now = self._now, False
        call = self.visit_expr_post_order(op)
        if not apart:
            return call
        func = self._module[op.args[0]].with_attr(MARK, self._mark)
        gvar = self.builder_.add_func(func, f"{op.args[0].name_hint}_apart")
        return relax.Call(call.op, [gvar, *call.args[1:]], call.attrs, call.ty_args)

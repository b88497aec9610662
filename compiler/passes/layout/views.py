"""Turns reshapes that FuseOps left alone into views of their input, or into flat copies where the
reshape may be a result of its function.

TVM recognises a view by proving that a program reads its input in order. It cannot prove that for
extents that divide each other, so reshapes are marked when they are legalised.
"""

from dataclasses import dataclass
from typing import Any

import tvm
from tvm import relax, topi

from compiler.passes.cpu.families.copy.match import IN_ORDER, is_copy
from compiler.passes.framework.base import ModulePass, Phase
from compiler.passes.match.rewriting import CallRewriter, rewrite_functions
from compiler.tir.exprs import op_name


def legalize_reshape(builder: relax.BlockBuilder, call: Any) -> Any:
    """The tensor program of a `relax.reshape`, with the mark that it keeps the order."""
    shape = call.args[1]
    shape = builder.lookup_binding(shape) if isinstance(shape, relax.Var) else shape
    return builder.call_te(
        topi.reshape,
        call.args[0],
        shape,
        primfunc_name_hint="reshape",
        primfunc_attrs={IN_ORDER: 1},
    )


@dataclass(frozen=True)
class Views(ModulePass):
    """Replaces calls of marked programs by `relax.reshape`, unless their result may be one of the
    function's or of a branch's.

    Such a result may be an output of the model, and must not share the memory of an input.
    """

    name = "views"
    phase = Phase.TENSOR_PROGRAMS

    def apply(self, module: tvm.IRModule) -> tvm.IRModule:
        """Rewrites every Relax function and drops dead bindings."""
        rewriter = _Rewriter(module)
        for func in module.functions.values():
            if isinstance(func, relax.Function):
                relax.analysis.post_order_visit(func, rewriter.note)
        return relax.transform.DeadCodeElimination()(rewrite_functions(rewriter))


@relax.expr_functor.mutator
class _Rewriter(CallRewriter):
    def __init__(self, module: tvm.IRModule) -> None:
        super().__init__(module)
        self.marked = {gvar for gvar, func in module.functions.items() if is_copy(func)}
        self.inner: set[Any] = set()

    def note(self, node: Any) -> None:
        """Remember the calls whose results stay inside: those that a block hides, and those that
        are nothing but operands of calls behind it.
        """
        if not isinstance(node, relax.SeqExpr):
            return
        bindings = [binding for block in node.blocks for binding in block.bindings]
        passed_on = [b.value for b in bindings if not isinstance(b.value, relax.Call)]
        leaving = {v for e in (node.body, *passed_on) for v in relax.analysis.free_vars(e)}
        self.inner |= {
            binding.value
            for binding in bindings
            if isinstance(binding.var, relax.DataflowVar) or binding.var not in leaving
        }

    def visit_call_(self, call: Any) -> Any:
        stays = call in self.inner
        call = self.visit_expr_post_order(call)
        # Fusion drops the mark of a program that it joins to another, so marked ones stand alone.
        if stays and op_name(call) == "relax.call_tir" and call.args[0] in self.marked:
            return relax.op.reshape(call.args[1].fields[0], call.ty_args[0].shape)
        return call

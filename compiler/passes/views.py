"""Reshapes that nothing was fused with: views of their input, or flat copies where a function returns them.

TVM tells a view by proving that indices keep their order, which it cannot do of extents that divide each other.
"""

from typing import Any

import tvm
from tvm import relax, tirx, topi

from compiler.passes.graph import op_name, rewrite_functions
from compiler.passes.kernels.generic import emit_parallel
from compiler.passes.machine import Machine
from compiler.passes.tir.exprs import load
from compiler.passes.tir.flat import Flattener
from compiler.passes.tir.loops import Stmt, seq
from compiler.passes.tir.stages import Axis, Stage

IN_ORDER = "relaxd.in_order"
"""Marks a tensor program that gives the elements of its first parameter in order; fusion drops the mark."""


def legalize_reshape(builder: relax.BlockBuilder, call: Any) -> Any:
    """The tensor program of a `relax.reshape`, marked."""
    shape = call.args[1]
    shape = builder.lookup_binding(shape) if isinstance(shape, relax.Var) else shape
    return builder.call_te(topi.reshape, call.args[0], shape, primfunc_name_hint="reshape", primfunc_attrs={IN_ORDER: 1})


def marked(func: Any) -> bool:
    """Whether a function is such a program."""
    return isinstance(func, tirx.PrimFunc) and bool(func.attrs) and IN_ORDER in func.attrs


def views(module: tvm.IRModule) -> tvm.IRModule:
    """The module with calls of marked programs replaced by `relax.reshape`, but for those whose result leaves its block."""
    rewriter = _Rewriter(module)
    for func in module.functions.values():
        if isinstance(func, relax.Function):
            relax.analysis.post_order_visit(func, rewriter.note)
    return relax.transform.DeadCodeElimination()(rewrite_functions(rewriter, module))


def emit_copy(func: tirx.PrimFunc, machine: Machine) -> Stmt:
    """The body of a marked program as one loop over flat buffers."""
    flat = Flattener()
    buffers = [flat.parameter(param) for param in func.params if hasattr(param.ty, "shape")]
    axis = Axis(tirx.Var("i", "int64"), buffers[-1].shape[0])
    stage = Stage("copy", buffers[-1], (axis,), (axis.var,), load(buffers[0], [axis.var]))
    return seq(*flat.prelude, emit_parallel(stage, machine))


@relax.expr_functor.mutator
class _Rewriter(relax.PyExprMutator):  # type: ignore[misc]
    def __init__(self, module: tvm.IRModule) -> None:
        super().__init__(module)
        self.marked = {gvar for gvar, func in module.functions.items() if marked(func)}
        self.inner: set[Any] = set()

    def note(self, node: Any) -> None:
        """Remember the calls whose results stay in their dataflow block."""
        for block in node.blocks if isinstance(node, relax.SeqExpr) else ():
            self.inner |= {binding.value for binding in block.bindings if isinstance(binding.var, relax.DataflowVar)}

    def visit_call_(self, call: Any) -> Any:
        stays = call in self.inner
        call = self.visit_expr_post_order(call)
        if stays and op_name(call) == "relax.call_tir" and call.args[0] in self.marked:
            return relax.op.reshape(call.args[1].fields[0], call.ty_args[0].shape)
        return call

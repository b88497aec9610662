"""Takes what has no elements, by its extents, out of graphs: no kernel reads or computes it.

Kernels divide by extents to find an element's place, and TVM's virtual machine cannot load a
constant without elements.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import tvm
from tvm import relax

from compiler.passes.framework.base import ModulePass, Phase
from compiler.passes.match.rewriting import CallRewriter, rewrite_functions
from compiler.tir.exprs import as_int, op_name

_MEANS = ("relax.mean", "relax.variance", "relax.std")


@dataclass(frozen=True)
class DropEmpty(ModulePass):
    """Replaces tensors with an extent that is known to be 0 by zeros of their shape, leaves them
    out of concatenations, and replaces means over no elements by NaN.
    """

    name = "drop_empty"
    phase = Phase.GRAPH

    def apply(self, module: tvm.IRModule) -> tvm.IRModule:
        """Rewrites every Relax function, and drops dead bindings; returns the same module if none
        has a tensor without elements.
        """
        if not any(_has_empty(func) for func in module.functions.values()):
            return module
        rewritten = rewrite_functions(_Rewriter(module))
        # Variables that only stand for others hide what these are bound to.
        steps = [relax.transform.CanonicalizeBindings(), relax.transform.DeadCodeElimination()]
        return tvm.transform.Sequential(steps)(rewritten)


def is_empty(ty: Any) -> bool:
    """Return true where an extent of a tensor of that type is known to be 0."""
    shape = getattr(ty, "shape", None)
    return isinstance(shape, relax.ShapeExpr) and any(as_int(axis) == 0 for axis in shape.values)


def _has_empty(func: Any) -> bool:
    empty: list[Any] = []

    def visit(node: Any) -> None:
        if isinstance(node, tvm.ir.Call | tvm.ir.Var | tvm.ir.GenericConst) and is_empty(node.ty):
            empty.append(node)

    if isinstance(func, relax.Function):
        relax.analysis.post_order_visit(func, visit)
    return bool(empty)


@relax.expr_functor.mutator
class _Rewriter(CallRewriter):
    def visit_generic_const_(self, constant: Any) -> Any:
        return self.builder_.emit(_zeros(constant.ty)) if is_empty(constant.ty) else constant

    def visit_call_(self, call: Any) -> Any:
        if is_empty(call.ty):
            return call if op_name(call) == "relax.zeros" else _zeros(call.ty)
        call = self.visit_expr_post_order(call)
        if op_name(call) in _MEANS and is_empty(call.args[0].ty):
            nan = np.full([1] * call.ty.ndim, np.nan, str(call.ty.dtype))
            return relax.op.broadcast_to(relax.const(nan), call.ty.shape)
        if op_name(call) == "relax.concat":
            return self._concat(call)
        return call

    def _concat(self, call: Any) -> Any:
        """Concatenate only the parts that have elements."""
        parts: Any = call.args[0]
        while isinstance(parts, relax.Var):
            parts = self.lookup_binding(parts)
        filled = [part for part in parts.fields if not is_empty(part.ty)]
        if len(filled) == len(parts.fields):
            return call
        return filled[0] if len(filled) == 1 else relax.op.concat(filled, call.attrs.axis)


def _zeros(ty: Any) -> Any:
    return relax.op.zeros(ty.shape, ty.dtype)

"""Keeps the memory plan from reserving an axis's greatest extent where no declared dim bounds it.

TVM plans a tensor with every extent at its upper bound. Of a dim without a maximum it knows none,
but min(1000000, h), which a slice up to a large constant leaves, is bounded by the constant: a run
on a small image would ask for terabytes.
"""

from dataclasses import dataclass
from typing import Any

import tvm
from tvm import relax, sym, tirx

from compiler.passes.framework.base import Phase
from compiler.passes.graph.rewriting import rewrite_functions
from compiler.tir.exprs import const, op_name

_ALLOCATE = "relax.builtin.alloc_tensor"
_BOUNDS = "tir_var_upper_bound"
_UNKNOWN = (1 << 63) - 1
"""What TVM gives as the upper bound of an expression that it knows none of."""


@dataclass(frozen=True)
class HideOpenBounds:
    """Writes extents that hold a dim without a maximum so that TVM finds no upper bound."""

    name = "hide_open_bounds"
    phase = Phase.MEMORY_PLAN

    def apply(self, module: tvm.IRModule) -> tvm.IRModule:
        """Rewrites the allocations of every Relax function, ahead of StaticPlanBlockMemory."""
        return rewrite_functions(_Rewriter(module), module)


@relax.expr_functor.mutator
class _Rewriter(relax.PyExprMutator):  # type: ignore[misc]
    def __init__(self, module: tvm.IRModule) -> None:
        super().__init__(module)
        self._bounded: frozenset[str] = frozenset()

    def visit_function_(self, op: relax.Function) -> relax.Expr:
        self._bounded = frozenset(map(str, (op.attrs or {}).get(_BOUNDS, {})))
        return super().visit_function_(op)

    def visit_call_(self, op: relax.Call) -> relax.Expr:
        call = self.visit_expr_post_order(op)
        if op_name(call) != _ALLOCATE or not isinstance(call.args[0], relax.ShapeExpr):
            return call
        extents = [self._hidden(extent) for extent in call.args[0].values]
        return relax.Call(call.op, [relax.ShapeExpr(extents), *call.args[1:]], call.attrs)

    def _hidden(self, extent: Any) -> Any:
        dims = tirx.analysis.undefined_vars(extent)
        open_dims = [dim for dim in dims if dim.name not in self._bounded]
        if not open_dims or sym.Analyzer().const_int_bound(extent).max_value == _UNKNOWN:
            return extent
        # No extent is negative. TVM takes a choice for unbounded, and drops it in the end.
        return tirx.if_then_else(open_dims[0] >= const(0), extent, const(0))

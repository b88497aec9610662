"""Keeps the memory plan from reserving extents that no run reaches.

TVM plans a tensor with every extent at its upper bound. Of a dim without a maximum it knows none,
but min(1000000, h), which a slice up to a large constant leaves, is bounded by the constant: a run
on a small image would ask for terabytes. Of declared dims it bounds each part of an extent by
itself: b * h * w // (h // 8 * (w // 8)) by the product of the maxima.

Upstream: no report was found; apache/tvm#18663 mended a like fault of dims with a minimum and no
maximum. The pass can go when StaticPlanBlockMemory bounds an extent as a whole.
"""

from dataclasses import dataclass
from typing import Any

import tvm
from tvm import relax, sym, tirx

from compiler.passes.framework.base import ModulePass, Phase
from compiler.passes.framework.properties import Property
from compiler.passes.match.rewriting import CallRewriter, rewrite_functions
from compiler.tir.exprs import as_int, const, op_name, substitute

LOOSE = 2
_ALLOCATE = "relax.builtin.alloc_tensor"
_BOUNDS = "tir_var_upper_bound"
_UNKNOWN = (1 << 63) - 1
"""What TVM gives as the upper bound of an expression that it knows none of."""


@dataclass(frozen=True)
class HideOpenBounds(ModulePass):
    """Writes extents that hold a dim without a maximum, and those that TVM bounds by `LOOSE` times
    what they are where all dims are at their maxima, so that TVM finds no upper bound.
    """

    name = "hide_open_bounds"
    phase = Phase.MEMORY_PLAN
    requires = (Property.DESTINATIONS,)

    def apply(self, module: tvm.IRModule) -> tvm.IRModule:
        """Rewrites the allocations of every Relax function, ahead of StaticPlanBlockMemory."""
        return rewrite_functions(_Rewriter(module))


@relax.expr_functor.mutator
class _Rewriter(CallRewriter):
    def __init__(self, module: tvm.IRModule) -> None:
        super().__init__(module)
        self._bounds: dict[str, int] = {}

    def visit_function_(self, op: relax.Function) -> relax.Expr:
        bounds = (op.attrs or {}).get(_BOUNDS, {})
        self._bounds = {str(name): int(bound) for name, bound in bounds.items()}
        return super().visit_function_(op)

    def rewrite(self, call: Any) -> Any:
        if op_name(call) != _ALLOCATE or not isinstance(call.args[0], relax.ShapeExpr):
            return call
        extents = [self._hidden(extent) for extent in call.args[0].values]
        return relax.Call(call.op, [relax.ShapeExpr(extents), *call.args[1:]], call.attrs)

    def _hidden(self, extent: Any) -> Any:
        dims = list(tirx.analysis.undefined_vars(extent))
        # No extent is negative. TVM takes a choice for unbounded, and drops it in the end.
        return (
            tirx.if_then_else(dims[0] >= const(0), extent, const(0))
            if dims and self._is_loose(extent, dims)
            else extent
        )

    def _is_loose(self, extent: Any, dims: list[Any]) -> bool:
        """True if TVM finds a bound that is not the extent's."""
        analyzer = sym.Analyzer()
        known = [dim for dim in dims if dim.name in self._bounds]
        for dim in known:
            analyzer.bind(dim, tvm.ir.Range.from_min_extent(0, self._bounds[dim.name] + 1))
        bound = int(analyzer.const_int_bound(extent).max_value)
        if bound == _UNKNOWN or len(known) < len(dims):
            return bound != _UNKNOWN
        most = substitute(extent, {dim: const(self._bounds[dim.name]) for dim in dims})
        value = as_int(analyzer.simplify(most))
        return value is None or bound > LOOSE * value

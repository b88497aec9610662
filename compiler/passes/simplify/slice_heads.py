"""Slices whole heads where a graph slices an axis and then splits the slice into heads.

FuseOps does not look through the reshape that splits the heads. With the slice behind it, the
transpose that follows reads the heads in place.
"""

from dataclasses import dataclass
from typing import Any

import tvm
from tvm import relax

from compiler.passes.framework.base import ModulePass, Phase
from compiler.passes.match.axis_parts import read_part
from compiler.passes.match.rewriting import CallRewriter, reads_of, rewrite_functions
from compiler.tir.exprs import as_int, op_name


@dataclass(frozen=True)
class SliceHeads(ModulePass):
    """Rewrites `reshape(x[.., a:b], [.., h, d])` to `reshape(x, [.., H, d])[.., a/d : b/d, :]`
    where d divides a, b and the axis.
    """

    name = "slice_heads"
    phase = Phase.GRAPH

    def apply(self, module: tvm.IRModule) -> tvm.IRModule:
        """Rewrites every Relax function and drops dead bindings."""
        return relax.transform.DeadCodeElimination()(rewrite_functions(_Rewriter(module)))


@relax.expr_functor.mutator
class _Rewriter(CallRewriter):
    def __init__(self, module: tvm.IRModule) -> None:
        super().__init__(module)
        self.used = reads_of(module)

    def visit_call_(self, call: Any) -> Any:
        # A slice with other readers stays in memory: reading the whole tensor again gains nothing.
        once = op_name(call) == "relax.reshape" and self.used[call.args[0]] == 1
        call = self.visit_expr_post_order(call)
        heads = self._heads(call) if once else None
        return call if heads is None else heads

    def _heads(self, call: Any) -> Any:
        """The slice of heads that equals a reshape of a slice, None for any other reshape."""
        bound = self.value_of(call.args[0])
        result = read_part(self.module, bound)
        if (
            result is None
            or not isinstance(call.args[1], relax.ShapeExpr)
            or len(call.args[1].values) < 2
        ):
            return None
        source, part = result
        *lead, count, size = call.args[1].values
        heads, width, extent = as_int(count), as_int(size), as_int(source.ty.shape.values[-1])
        last = part.axis == source.ty.ndim - 1
        if (
            not last
            or extent is None
            or not heads
            or not width
            or heads * width != part.count
            or extent % width
            or part.first % width
        ):
            return None
        reshaped = self.builder_.emit(
            relax.op.reshape(source, relax.ShapeExpr([*lead, extent // width, width]))
        )
        first = part.first // width
        return relax.op.strided_slice(reshaped, [len(lead)], [first], [first + heads])

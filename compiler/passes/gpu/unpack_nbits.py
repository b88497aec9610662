"""Turns matrices of few bits into float32 for targets without kernels for them."""

from dataclasses import dataclass
from typing import Any

import tvm
from tvm import relax, te

from compiler.ir.graph.indices import wrap
from compiler.ir.ops.quantized.block_matmul import reals
from compiler.passes.framework.base import ModulePass, Phase
from compiler.passes.match.block_matmuls import read_nbits_call
from compiler.passes.match.rewriting import rewrite_functions


@dataclass(frozen=True)
class UnpackNBits(ModulePass):
    """Rewrites matmuls by matrices of few bits into `matmul(x, constant [K, N])`, and reads of
    their rows into those of constants.
    """

    name = "unpack_nbits"
    phase = Phase.GRAPH

    def apply(self, module: tvm.IRModule) -> tvm.IRModule:
        """Rewrites every Relax function."""
        return rewrite_functions(_Rewriter(module), module)


@relax.expr_functor.mutator
class _Rewriter(relax.PyExprMutator):  # type: ignore[misc]
    def visit_call_(self, call: Any) -> Any:
        call = self.visit_expr_post_order(call)
        found = read_nbits_call(self, call)
        if found is None:
            return call
        table = reals(found.table)
        if found.rounded is not None:
            return relax.op.matmul(found.given, relax.const(table.T.copy()))
        return self.builder_.call_te(
            _rows, relax.const(table), found.given, primfunc_name_hint="take"
        )


def _rows(table: Any, index: Any) -> Any:
    """Rows of a table, at negative indices from its end."""
    return te.compute(
        (*index.shape, table.shape[1]),
        lambda *at: table(wrap(index(*at[:-1]), table.shape[0]), at[-1]),
        name="take",
    )

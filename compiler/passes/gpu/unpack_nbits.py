"""Turns block-wise quantized weights into float32 for targets without kernels for them."""

from dataclasses import dataclass
from typing import Any

import tvm
from tvm import relax, te

from compiler.ir.graph.indices import wrap
from compiler.ir.ops.quantized.block_matmul import dequantize
from compiler.passes.framework.base import ModulePass, Phase
from compiler.passes.match.block_matmuls import read_blockwise_call
from compiler.passes.match.rewriting import CallRewriter, rewrite_functions


@dataclass(frozen=True)
class UnpackNBits(ModulePass):
    """Rewrites matmuls by block-wise quantized weights into `matmul(x, constant [K, N])`, and reads
    of their rows into those of constants.
    """

    name = "unpack_nbits"
    phase = Phase.GRAPH

    def apply(self, module: tvm.IRModule) -> tvm.IRModule:
        """Rewrites every Relax function."""
        return rewrite_functions(_Rewriter(module))


@relax.expr_functor.mutator
class _Rewriter(CallRewriter):
    def rewrite(self, call: Any) -> Any:
        match = read_blockwise_call(self, call)
        if match is None:
            return call
        table = dequantize(match.table)
        if match.quantized is not None:
            return relax.op.matmul(match.data, relax.const(table.T.copy()))
        return self.builder_.call_te(
            _rows, relax.const(table), match.data, primfunc_name_hint="take"
        )


def _rows(table: Any, index: Any) -> Any:
    """Rows of a table, at negative indices from its end."""
    return te.compute(
        (*index.shape, table.shape[1]),
        lambda *position: table(wrap(index(*position[:-1]), table.shape[0]), position[-1]),
        name="take",
    )

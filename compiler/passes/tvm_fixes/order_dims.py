"""Orders the dims that fused tensor programs take as parameters of their own.

FuseTIR collects them in the order of their addresses, which differs from process to process: equal
requests would get libraries of different bytes.

Upstream: no report was found. The pass can go when FuseTIR keeps dims in the order of their use.
"""

from dataclasses import dataclass
from typing import Any

import tvm
import tvm_ffi
from tvm import relax, tirx

from compiler.passes.framework.base import ModulePass, Phase
from compiler.passes.framework.properties import Property
from compiler.passes.match.rewriting import CallRewriter, rewrite_functions
from compiler.tir.exprs import op_name


@dataclass(frozen=True)
class OrderDims(ModulePass):
    """Moves the parameters of tensor programs that are no buffers into the order of their first use
    by extents of the buffers or, without one, by the loops.
    """

    name = "order_dims"
    phase = Phase.TENSOR_PROGRAMS
    requires = (Property.FUSED,)

    def apply(self, module: tvm.IRModule) -> tvm.IRModule:
        """Rewrites such programs and their calls; returns the same module if none is to change."""
        orders = {
            gvar: order
            for gvar in _called(module)
            if isinstance(module[gvar], tirx.PrimFunc)
            and (order := _order(module[gvar])) is not None
        }
        if not orders:
            return module
        functions = {
            gvar: _reorder(func, orders[gvar]) if gvar in orders else func
            for gvar, func in module.functions.items()
        }
        changed = tvm.IRModule(functions, attrs=module.attrs, global_infos=module.global_infos)
        return rewrite_functions(_Rewriter(changed, orders))


def _called(module: tvm.IRModule) -> list[Any]:
    """The functions that are referred to by plain calls of tensor programs alone, whose arguments
    this pass knows how to move.
    """
    plain: dict[Any, None] = {}
    others: set[Any] = set()

    def note(node: Any) -> None:
        for position, arg in enumerate(node.args if isinstance(node, relax.Call) else ()):
            if isinstance(arg, tvm.ir.GlobalVar):
                if position == 0 and op_name(node) == "relax.call_tir":
                    plain[arg] = None
                else:
                    others.add(arg)

    for func in module.functions.values():
        if isinstance(func, relax.Function):
            relax.analysis.post_order_visit(func, note)
    return [gvar for gvar in plain if gvar not in others]


def _order(func: tirx.PrimFunc) -> list[int] | None:
    """The positions of the parameters in their new order, None if they are in it already."""
    params = list(func.params)
    scalars = [position for position, param in enumerate(params) if not hasattr(param.ty, "shape")]
    used: dict[Any, None] = {}
    for param in params:
        for extent in getattr(param.ty, "shape", ()):
            tvm_ffi.structural_walk(extent, (tvm.ir.Var, used.setdefault))
    # A dim that no extent holds is somewhere in the loops.
    used |= dict.fromkeys(tirx.analysis.undefined_vars(func.body, []))
    ranks = {var: rank for rank, var in enumerate(used)}
    wanted = sorted(scalars, key=lambda position: ranks.get(params[position], len(ranks)))
    if wanted == scalars:
        return None
    order = list(range(len(params)))
    for position, source in zip(scalars, wanted, strict=True):
        order[position] = source
    return order


def _reorder(func: tirx.PrimFunc, order: list[int]) -> tirx.PrimFunc:
    params = [func.params[position] for position in order]
    return tirx.PrimFunc(params, func.body, func.ret_type, func.attrs, func.span)


@relax.expr_functor.mutator
class _Rewriter(CallRewriter):
    def __init__(self, module: tvm.IRModule, orders: dict[Any, list[int]]) -> None:
        super().__init__(module)
        self.orders = orders

    def rewrite(self, call: Any) -> Any:
        order = self.orders.get(call.args[0]) if op_name(call) == "relax.call_tir" else None
        if order is None:
            return call
        # Results are parameters of the program, and no arguments of its call.
        fields = list(call.args[1].fields)
        arguments = [fields[position] for position in order if position < len(fields)]
        return relax.Call(
            call.op,
            [call.args[0], relax.Tuple(arguments), *call.args[2:]],
            call.attrs,
            call.ty_args,
        )

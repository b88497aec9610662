"""Moves views (reshape, squeeze, expand_dims) behind elementwise operators and merges them.

FuseOps does not look through a view: one between a matmul and its activation would keep the two in
separate kernels.
"""

from dataclasses import dataclass
from typing import Any

import tvm
import tvm_ffi
from tvm import relax

from compiler.passes.framework.base import ModulePass, Phase
from compiler.passes.match.positions import extents as extents_of
from compiler.passes.match.rewriting import CallRewriter, rewrite_functions
from compiler.tir.exprs import op_name

VIEWS = frozenset({"relax.reshape", "relax.squeeze", "relax.expand_dims", "relax.flatten"})
ELEMENTWISE = frozenset(
    f"relax.{name}"
    for name in (
        "nn.relu", "nn.leakyrelu", "nn.gelu", "nn.gelu_tanh", "nn.silu", "sigmoid", "tanh",
        "erf", "exp", "log", "sqrt", "rsqrt", "square",
        "abs", "negative", "clip", "ceil", "floor", "round", "astype",
    )
)  # fmt: skip
"""Operators of one tensor that keep its shape."""


@dataclass(frozen=True)
class LiftViews(ModulePass):
    """Rewrites `op(view(x))` to `view(op(x))`, and `view(view(x))` to one view, or to x if the
    shapes are equal.

    transposes: turn a permutation that moves only axes of extent 1 into a reshape. It has to wait
    until the layout passes are done, which look through permutations but not through reshapes.
    """

    transposes: bool = False
    name = "lift_views"
    phase = Phase.GRAPH

    def apply(self, module: tvm.IRModule) -> tvm.IRModule:
        """Rewrites every Relax function and drops dead bindings."""
        rewritten = rewrite_functions(_Rewriter(module, self.transposes))
        return tvm.transform.Sequential(
            [relax.transform.CanonicalizeBindings(), relax.transform.DeadCodeElimination()]
        )(rewritten)


@relax.expr_functor.mutator
class _Rewriter(CallRewriter):
    def __init__(self, module: tvm.IRModule, transposes: bool) -> None:
        super().__init__(module)
        self.transposes = transposes

    def rewrite(self, call: Any) -> Any:
        call = self.builder_.normalize(call)
        name = op_name(call)
        if self.transposes and name == "relax.permute_dims" and _moves_nothing(call):
            call, name = (
                self.builder_.normalize(relax.op.reshape(call.args[0], call.ty.shape)),
                "relax.reshape",
            )
        if name not in VIEWS and name not in ELEMENTWISE:
            return call
        view = self._view(call.args[0])
        if view is None:
            return call
        if name in VIEWS:
            return self._merge(call, view.args[0])
        moved = self.builder_.emit(
            relax.Call(call.op, [view.args[0], *call.args[1:]], call.attrs, call.ty_args)
        )
        return relax.Call(view.op, [moved, *view.args[1:]], view.attrs, view.ty_args)

    def _view(self, expr: Any) -> Any:
        """The view of known extents that `expr` is bound to, else None."""
        bound = self.value_of(expr)
        return (
            bound
            if isinstance(bound, relax.Call)
            and op_name(bound) in VIEWS
            and extents_of(bound.args[0]) is not None
            else None
        )

    @staticmethod
    def _merge(call: Any, source: Any) -> Any:
        """The one view of `source` that `call`, a view of a view of it, is equal to."""
        wanted = extents_of(call)
        if wanted is None:
            return call
        have = extents_of(source)
        if have is not None and len(have) == len(wanted) and all(map(_same, have, wanted)):
            return source
        return relax.op.reshape(source, call.ty.shape)


def _same(lhs: Any, rhs: Any) -> bool:
    return bool(tvm_ffi.structural_equal(lhs, rhs))


def _moves_nothing(call: Any) -> bool:
    """True if a permutation keeps the order of the axes that are not 1."""
    extents = extents_of(call.args[0])
    if extents is None or call.ty.shape is None:
        return False
    axes = (
        [int(axis) for axis in call.attrs.axes]
        if call.attrs.axes is not None
        else list(range(len(extents)))[::-1]
    )
    wide = [axis for axis in axes if getattr(extents[axis], "value", None) != 1]
    return wide == sorted(wide)

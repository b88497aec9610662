"""Reshapes and transposes constants at compile time with numpy: TVM's own folding compiles and runs
a kernel for each of them.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import tvm
from tvm import relax

from compiler.ir.arrays import as_constant, values_of
from compiler.passes.framework.base import ModulePass, Phase
from compiler.passes.match.rewriting import CallRewriter, rewrite_functions
from compiler.tir.exprs import op_name


def _axes(call: Any, rank: int) -> list[int]:
    return (
        [int(axis) for axis in call.attrs.axes]
        if call.attrs.axes is not None
        else list(range(rank))[::-1]
    )


def _reshape(call: Any, value: np.ndarray) -> np.ndarray | None:
    shape = (
        [getattr(axis, "value", None) for axis in call.ty.shape.values]
        if call.ty.shape is not None
        else [None]
    )
    # A dim in the new shape cannot be folded.
    known = [int(axis) for axis in shape if axis is not None]
    return value.reshape(known) if len(known) == len(shape) else None


_FOLDS: dict[str, Callable[[Any, np.ndarray], np.ndarray | None]] = {
    "relax.permute_dims": lambda call, value: value.transpose(_axes(call, value.ndim)),
    "relax.reshape": _reshape,
    "relax.expand_dims": _reshape,
    "relax.squeeze": _reshape,
    "relax.flatten": _reshape,
}


@dataclass(frozen=True)
class FoldLayout(ModulePass):
    """Replaces layout operators on constants by constants."""

    name = "fold_layout"
    phase = Phase.GRAPH

    def apply(self, module: tvm.IRModule) -> tvm.IRModule:
        """Rewrites every Relax function."""
        return rewrite_functions(_Rewriter(module))


@relax.expr_functor.mutator
class _Rewriter(CallRewriter):
    def rewrite(self, call: Any) -> Any:
        fold = _FOLDS.get(op_name(call))
        source = self.constant_of(call.args[0]) if fold is not None and call.args else None
        if fold is None or source is None:
            return call
        value = fold(call, values_of(source))
        return call if value is None else as_constant(value)

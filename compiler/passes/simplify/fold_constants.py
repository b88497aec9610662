"""Computes what depends on constants alone.

TVM's FoldConstant makes a tensor program of every operator before it looks whether its operands are
constants, which took a fortieth of MiniLM's build and found nothing.
"""

from dataclasses import dataclass
from typing import Any

import tvm
from tvm import relax, tirx

from compiler.ir.graph.programs import CALLS_OUT
from compiler.passes.framework.base import ModulePass, Phase
from compiler.passes.framework.bindings import bindings_within


@dataclass(frozen=True)
class FoldConstants(ModulePass):
    """Runs TVM's pass where a module has anything for it."""

    name = "fold_constants"
    phase = Phase.GRAPH

    def apply(self, module: tvm.IRModule) -> tvm.IRModule:
        """Replaces calls of fixed shape that read constants alone by constants."""
        functions = (f for f in module.functions.values() if isinstance(f, relax.Function))
        if not any(map(_has_work, functions)):
            return module
        # What calls C code cannot run here: TVM folds no call of a program that it does not see.
        calling = {gvar: f for gvar, f in module.functions.items() if CALLS_OUT in (f.attrs or {})}
        seen = {gvar: f for gvar, f in module.functions.items() if gvar not in calling}
        folded = relax.transform.FoldConstant()(_with_functions(module, seen))
        return _with_functions(folded, {**dict(folded.functions), **calling})


def _with_functions(module: tvm.IRModule, functions: dict[Any, Any]) -> tvm.IRModule:
    return tvm.IRModule(functions, attrs=module.attrs, global_infos=module.global_infos)


def _has_work(function: relax.Function) -> bool:
    constant: set[Any] = set()
    for variable, value in bindings_within(function.body):
        # TVM puts shapes that have a variable of their own where they are read.
        if isinstance(value.ty, relax.ShapeType):
            return True
        if _has_fixed_shape(value.ty) and constant.issuperset(relax.analysis.free_vars(value)):
            if isinstance(value, tvm.ir.Call):
                return True
            constant.add(variable)
    return False


def _has_fixed_shape(ty: Any) -> bool:
    shape = getattr(ty, "shape", None)
    return isinstance(shape, relax.ShapeExpr) and all(
        isinstance(extent, tirx.IntImm) for extent in shape.values
    )

"""Fuses tensor programs by their marks, as TVM's FuseOps and FuseTIR do."""

from dataclasses import dataclass

import tvm
from tvm import relax

from compiler.ir.programs import TAKES_DIMS
from compiler.passes.framework.base import Phase
from compiler.passes.graph.op_patterns import MARK, OPAQUE


@dataclass(frozen=True)
class FusePrograms:
    """FuseTIR refuses some functions with programs that take dims as numbers beside their tensors
    (`Check failed: VarRemapGet(source) == nullptr`): then these stay kernels of their own.
    """

    name = "fuse_programs"
    phase = Phase.TENSOR_PROGRAMS

    def apply(self, module: tvm.IRModule) -> tvm.IRModule:
        """Fuses the programs that each Relax function calls."""
        try:
            return _fused(module)
        except tvm.error.InternalError:
            apart = _apart(module)
            if apart is None:
                raise
            return _fused(apart)


def _fused(module: tvm.IRModule) -> tvm.IRModule:
    return relax.transform.FuseTIR()(relax.transform.FuseOps()(module))


def _apart(module: tvm.IRModule) -> tvm.IRModule | None:
    """The module whose programs that take dims are opaque; None where they are already."""
    taking = {
        gvar: func
        for gvar, func in module.functions.items()
        if TAKES_DIMS in (func.attrs or {}) and int(func.attrs.get(MARK, OPAQUE)) != OPAQUE
    }
    if not taking:
        return None
    functions = {
        gvar: func.with_attr(MARK, OPAQUE) if gvar in taking else func
        for gvar, func in module.functions.items()
    }
    return tvm.IRModule(functions, attrs=module.attrs, global_infos=module.global_infos)

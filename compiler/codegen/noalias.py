"""Says of every function that its buffers do not overlap."""

import tvm
from tvm import tirx


def no_alias(module: tvm.IRModule) -> tvm.IRModule:
    """The module with every PrimFunc marked `tirx.noalias`; Relax gives no function one buffer
    twice as output and input.

    TVM's LLVM back end goes by the last function alone, which is often a shape function of its own
    that lacks the mark.
    """
    marked = {
        gvar: func.with_attr("tirx.noalias", True) if isinstance(func, tirx.PrimFunc) else func
        for gvar, func in module.functions.items()
    }
    return tvm.IRModule(marked, attrs=module.attrs, global_infos=module.global_infos)

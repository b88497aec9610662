"""Rewrites the tensor programs of a module one by one."""

from collections.abc import Callable

import tvm
from tvm import tirx


def map_programs(
    module: tvm.IRModule, change: Callable[[tirx.PrimFunc], tirx.PrimFunc]
) -> tvm.IRModule:
    """The module with `change` of each tensor program; Relax functions stay."""
    functions = {
        gvar: change(func) if isinstance(func, tirx.PrimFunc) else func
        for gvar, func in module.functions.items()
    }
    return tvm.IRModule(functions, attrs=module.attrs, global_infos=module.global_infos)

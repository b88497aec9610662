"""Makes a lowered module a system library: its functions register themselves, under names that
other models do not have.
"""

import tvm
from tvm import tirx


def as_system_lib(module: tvm.IRModule, prefix: str) -> tvm.IRModule:
    """The module with `prefix` before the symbol of every tensor program.

    TVM's own AttachGlobalSymbol would do so too, but fails on calls of the virtual machine (0.27).
    """
    functions = {gvar: _prefixed(function, prefix) for gvar, function in module.functions.items()}
    renamed = tvm.IRModule(functions, attrs=module.attrs, global_infos=module.global_infos)
    return renamed.with_attr("system_lib_prefix", prefix)


def _prefixed(function: tvm.ir.BaseFunc, prefix: str) -> tvm.ir.BaseFunc:
    symbol = (
        function.attrs.get("global_symbol")
        if isinstance(function, tirx.PrimFunc) and function.attrs
        else None
    )
    return function if symbol is None else function.with_attr("global_symbol", f"{prefix}{symbol}")

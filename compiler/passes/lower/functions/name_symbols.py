"""Gives every tensor program the symbol of its C function."""

from dataclasses import dataclass

import tvm
from tvm import tirx

from compiler.passes.framework.base import ModulePass, Phase
from compiler.passes.framework.properties import Property


@dataclass(frozen=True)
class NameSymbols(ModulePass):
    """Names each tensor program after its global variable, with `prefix` before."""

    prefix: str = ""
    name = "name_symbols"
    phase = Phase.LOWERED_LOOPS
    ensures = (Property.SYMBOLS,)

    def apply(self, module: tvm.IRModule) -> tvm.IRModule:
        """Renames every tensor program."""
        functions = {
            gvar: func.with_attr("global_symbol", f"{self.prefix}{gvar.name_hint}")
            if isinstance(func, tirx.PrimFunc)
            else func
            for gvar, func in module.functions.items()
        }
        return tvm.IRModule(functions, attrs=module.attrs, global_infos=module.global_infos)

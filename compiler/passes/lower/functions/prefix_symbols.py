"""Prefixes the symbols of a module that becomes a system library, whose functions register
themselves, under names that other models do not have.
"""

from dataclasses import dataclass

import tvm
from tvm import tirx

from compiler.passes.framework.base import Phase
from compiler.passes.framework.programs import ProgramPass
from compiler.passes.framework.properties import Property


@dataclass(frozen=True)
class PrefixSymbols(ProgramPass):
    """Puts `prefix` before the symbol of every tensor program.

    TVM's own AttachGlobalSymbol would do so too, but fails on calls of the virtual machine (0.27).
    """

    prefix: str
    name = "prefix_symbols"
    phase = Phase.VIRTUAL_MACHINE
    requires = (Property.SYMBOLS,)

    def apply(self, module: tvm.IRModule) -> tvm.IRModule:
        """Renames every tensor program."""
        return super().apply(module).with_attr("system_lib_prefix", self.prefix)

    def rewrite(self, func: tirx.PrimFunc) -> tirx.PrimFunc:
        """Renames a program."""
        return func.with_attr("global_symbol", f"{self.prefix}{func.attrs['global_symbol']}")

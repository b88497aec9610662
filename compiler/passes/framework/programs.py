"""The base of passes that rewrite the tensor programs of a module one by one."""

import tvm
from tvm import tirx

from compiler.passes.framework.base import ModulePass


class ProgramPass(ModulePass):
    """Rewrites each tensor program by itself; Relax functions stay."""

    def apply(self, module: tvm.IRModule) -> tvm.IRModule:
        """Rewrites every tensor program."""
        functions = {
            gvar: self.rewrite(func) if isinstance(func, tirx.PrimFunc) else func
            for gvar, func in module.functions.items()
        }
        return tvm.IRModule(functions, attrs=module.attrs, global_infos=module.global_infos)

    def rewrite(self, func: tirx.PrimFunc) -> tirx.PrimFunc:
        """The rewritten program, which a subclass computes."""
        raise NotImplementedError

"""Indices of 32 bits, for processors to which a 64-bit sum is several instructions."""

from dataclasses import dataclass
from typing import Any

import tvm
from tvm import tirx

from compiler.passes.framework.base import ModulePass, Phase
from compiler.passes.framework.properties import Property


@dataclass(frozen=True)
class NarrowIndices(ModulePass):
    """Makes loops 32 bits wide in the programs whose extents are all known.

    TVM narrows an index where it knows the range of every part, which it does not look up behind a
    variable; so values are put where variables stand first. An index that is narrow in part would
    be a gather in the place of a vector's load, so programs over dims stay as they are.
    """

    name = "narrow_indices"
    phase = Phase.LOWERED_LOOPS
    requires = (Property.FLAT_BUFFERS,)

    def apply(self, module: tvm.IRModule) -> tvm.IRModule:
        """Rewrites the tensor programs without dims."""
        chosen = {
            gvar: func
            for gvar, func in module.functions.items()
            if isinstance(func, tirx.PrimFunc) and _is_fixed(func)
        }
        if not chosen:
            return module
        steps = tvm.ir.transform.Sequential(
            [tirx.transform.StmtSimplify(), tirx.transform.NarrowDataType(32)]
        )
        done = steps(tvm.IRModule(chosen, attrs=module.attrs))
        return tvm.IRModule({**dict(module.functions), **dict(done.functions)}, attrs=module.attrs)


def _is_fixed(func: Any) -> bool:
    extents = [extent for param in func.params for extent in getattr(param.ty, "shape", [param])]
    return not any(isinstance(extent, tvm.ir.Var) for extent in extents)

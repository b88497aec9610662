"""Simplifies statements in the kernels of the families that need it.

StmtSimplify puts the values of variables where the variables stand, which took two fifths of
ResNet-50's build; for other families LLVM does that work anyway.
"""

from dataclasses import dataclass

import tvm
from tvm import tirx

from compiler.passes.framework.attributes import FAMILY
from compiler.passes.framework.base import ModulePass, Phase
from compiler.passes.framework.properties import Property

_SIMPLIFIED = ("attention", "generic")
"""Families whose kernels LLVM leaves in scalars where conditions on constant extents stay written
out: over 197 keys attention took twice as long, a layer norm half as long again."""


@dataclass(frozen=True)
class SimplifyKernels(ModulePass):
    """Runs TVM's StmtSimplify on the kernels of some families."""

    name = "simplify_kernels"
    phase = Phase.LOWERED_LOOPS
    requires = (Property.FLAT_BUFFERS,)

    def apply(self, module: tvm.IRModule) -> tvm.IRModule:
        """Rewrites the tensor programs whose note names such a family."""
        chosen = {
            gvar: function
            for gvar, function in module.functions.items()
            if function.attrs and str(function.attrs.get(FAMILY, "")) in _SIMPLIFIED
        }
        if not chosen:
            return module
        done = tirx.transform.StmtSimplify()(tvm.IRModule(chosen, attrs=module.attrs))
        return tvm.IRModule({**dict(module.functions), **dict(done.functions)}, attrs=module.attrs)

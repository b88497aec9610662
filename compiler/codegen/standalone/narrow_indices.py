"""Indices of 32 bits, for processors to which a 64-bit sum is several instructions."""

from typing import Any

import tvm
from tvm import tirx


def narrow_indices(module: tvm.IRModule) -> tvm.IRModule:
    """The flat module with 32-bit loops in the functions whose extents are all known.

    TVM narrows an index where it knows the range of every part, which it does not look up behind a
    variable; so values are put where variables stand first. An index that is narrow in part would
    be a gather in the place of a vector's load, so functions over dims stay as they are.
    """
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

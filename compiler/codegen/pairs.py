"""Loops over two lanes for processors without vectors of two: LLVM would widen both lanes to 64
bits each, and call a library for them.
"""

from typing import Any

import tvm
import tvm_ffi
from tvm import tirx
from tvm.tirx.stmt import ForKind

from compiler.tir.exprs import as_int
from compiler.tir.loops import with_body


def unrolled_pairs(module: tvm.IRModule) -> tvm.IRModule:
    """The module with two statements in place of each vectorised loop over two lanes."""
    functions = {
        gvar: with_body(func, tvm_ffi.structural_map(func.body, [(tirx.For, _unrolled)]))
        if isinstance(func, tirx.PrimFunc)
        else func
        for gvar, func in module.functions.items()
    }
    return tvm.IRModule(functions, attrs=module.attrs, global_infos=module.global_infos)


def _unrolled(loop: Any) -> Any:
    if loop.kind != ForKind.VECTORIZED or as_int(loop.extent) != 2:
        return loop
    return tirx.For(loop.loop_var, loop.min, loop.extent, ForKind.UNROLLED, loop.body)

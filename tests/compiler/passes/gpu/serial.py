"""Scheduled kernels as programs for this machine's processor: each grid becomes loops, all memory
is plain.

A schedule is a program of its own before TVM gives its loops to threads: run in order it computes
what the grid does. What this leaves untested is TVM's last step, the barriers and the sizes of
shared memory.
"""

from typing import Any

import numpy as np
import tvm
import tvm_ffi
from tvm import ir, relax, tirx
from tvm.tirx.stmt import ForKind

from compiler import targets
from compiler.codegen.tail_calls import without_tail_calls
from compiler.passes import manager
from tests.compiler.quick_code import register_lowering


def serial(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """`func` with its grids as loops."""
    buffers: dict[int, tuple[Any, Any]] = {}

    def plain(variable: Any) -> Any:
        if not isinstance(variable.ty, tirx.BufferType) or variable.ty.storage_scope in (
            "",
            "global",
        ):
            return variable
        key = variable.__chandle__()
        if key not in buffers:
            fresh = tirx.decl_buffer(list(variable.shape), str(variable.dtype), name=variable.name)
            buffers[key] = (variable, fresh)
        return buffers[key][1]

    def loop(node: Any) -> Any:
        if node.kind != ForKind.THREAD_BINDING:
            return node
        return tirx.For(node.loop_var, node.min, node.extent, ForKind.SERIAL, node.body)

    def call(node: Any) -> Any:
        return node.args[0] if getattr(node.op, "name", "") == "tirx.tvm_thread_invariant" else node

    return tvm_ffi.structural_map(func, [(ir.Var, plain), (tirx.For, loop), (ir.Call, call)])


class OnProcessor:
    """Kernels and the calls between them, run here; takes and gives numpy arrays."""

    def __init__(self, module: tvm.IRModule) -> None:
        functions = {
            gvar: serial(func) if isinstance(func, tirx.PrimFunc) else func
            for gvar, func in module.functions.items()
        }
        processor = targets.resolve("x86-64-v2")
        lowered = manager.to_machine(tvm.IRModule(functions, attrs=module.attrs), processor, {})
        plain = tvm.target.Target({**processor.to_tvm(), "opt-level": 0})
        built = relax.build(lowered, plain, relax_pipeline=None, tir_pipeline=register_lowering())
        self._machine = relax.VirtualMachine(without_tail_calls(built), tvm.cpu())

    def __call__(self, *arrays: np.ndarray) -> list[np.ndarray]:
        result = self._machine["main"](
            *(tvm.runtime.tensor(np.require(array, requirements="C")) for array in arrays)
        )
        return [result.numpy()] if hasattr(result, "numpy") else [part.numpy() for part in result]

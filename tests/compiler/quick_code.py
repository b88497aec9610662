"""Machine code that is made quickly: what is built to be run once takes longer to optimise than to
run.
"""

from typing import Any

import tvm
from tvm import tirx

from compiler import targets
from compiler.passes import manager
from compiler.passes.pipelines import pipeline

_SELECTION = ("fast-isel:int=1", "optimize-regalloc:int=2")
"""Flags of LLVM that are unset, on (1) or off (2)."""
_LEFT_OUT = (
    *("lsr", "cgp", "machine-licm", "machine-cse", "machine-sink", "post-ra"),
    *("branch-fold", "block-placement"),
)

QUICK = tvm.target.Target(
    {
        "kind": "llvm",
        "opt-level": 0,
        # TVM generates code at LLVM's highest level where it runs it at once, whatever the target
        # says: half of the time of a test of an operator.
        "cl-opt": [
            *(f"-{flag}" for flag in _SELECTION),
            *(f"-disable-{step}:bool=1" for step in _LEFT_OUT),
        ],
    }
)
"""This machine's instructions. LLVM's flags are the process's while it generates such code, so that
no other thread may generate any.
"""

_NAME = "relaxd"


def register_lowering() -> str:
    """Make our passes below the loops known to TVM, which takes pipelines by name only; the name.

    TVM binds the target itself.
    """
    target = targets.resolve("x86-64-v2")
    steps = [
        step
        for step in pipeline(target, {})
        if step.phase.is_by_kernel and step.name != "tirx.BindTarget"
    ]

    @tvm.transform.module_pass(opt_level=0, name=_NAME)
    def lower(module: tvm.IRModule, _context: Any) -> tvm.IRModule:
        return manager.run(steps, module, target=target)

    def nothing() -> Any:
        return tvm.ir.transform.Sequential([])

    tirx.register_tir_pipeline(_NAME, lambda: (lower, nothing, nothing))
    return _NAME

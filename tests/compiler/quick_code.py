"""Machine code that is made quickly: what is built to be run once takes longer to optimise than to
run.
"""

import tvm

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

"""Makes vector statements of vectorized loops."""

import threading
from dataclasses import dataclass

import tvm
from tvm import tirx

from compiler.passes.framework.base import ModulePass, Phase
from compiler.passes.framework.properties import Property

_VECTOR_CALLS = ("tirx.nearbyint", "tirx.rsqrt")
"""Functions that LLVM computes in vectors and TVM does not know to be such."""

_MARKING = threading.Lock()
"""TVM refuses to be told of an attribute twice."""

_TARGET = "target"
"""The attribute by which BindTarget states a function's target."""


@dataclass(frozen=True)
class VectorizeLoops(ModulePass):
    """Runs TVM's VectorizeLoop.

    At each loop TVM asks LLVM anew whether the target's vectors are scalable, which took 95 % of
    the pass. It is asked once here, and sees no target where they are not.
    """

    name = "vectorize_loops"
    phase = Phase.LOWERED_LOOPS
    requires = (Property.TARGETS, Property.NO_BFLOAT16_ARITHMETIC)
    ensures = (Property.NO_VECTOR_LOOPS,)

    def apply(self, module: tvm.IRModule) -> tvm.IRModule:
        """Rewrites every tensor program."""
        mark_vector_calls()
        vectorize = tirx.transform.VectorizeLoop(True)
        bound = {gvar: function.attrs[_TARGET] for gvar, function in module.functions.items()}
        if any(map(_has_scalable_vectors, set(bound.values()))):
            return vectorize(module)
        unbound = {gvar: func.without_attr(_TARGET) for gvar, func in module.functions.items()}
        done = vectorize(tvm.IRModule(unbound, attrs=module.attrs))
        functions = {
            gvar: func.with_attr(_TARGET, bound[gvar]) for gvar, func in done.functions.items()
        }
        return tvm.IRModule(functions, attrs=module.attrs)


def _has_scalable_vectors(target: tvm.target.Target) -> bool:
    """Checks that TVM splits loops into vectors whose length the processor knows: with RISC-V's V
    and ARM's SVE.
    """
    has_feature = tvm.get_global_func("target.target_has_feature")
    return bool(target.features.has_sve) or bool(has_feature("v", target))


def mark_vector_calls() -> None:
    """Make TVM know the functions that LLVM computes in vectors.

    VectorizeLoop makes a vector loop serial where it meets a function that has no vectors, and by
    then may have visited a Let of the same expression, which it refuses to visit again.
    """
    with _MARKING:
        for name in _VECTOR_CALLS:
            if not tvm.ir.Op.get(name).get_attr("TVectorizable"):
                tvm.ir.register_op_attr(name, "TVectorizable", True)

"""Checks, before the memory is planned, that every operator became a tensor program and every shape
is known.
"""

from dataclasses import dataclass
from typing import Any

import tvm
from tvm import relax

from compiler.errors import PassError
from compiler.passes.framework.base import ModulePass, Phase
from compiler.passes.framework.properties import Property, survivors


@dataclass(frozen=True)
class CheckLowered(ModulePass):
    """Refuses modules with an operator that LegalizeOps left, or a tensor of unknown extents.

    The results of an If and of a call of a Relax function may have unknown extents: the importers
    cast them right behind it.
    """

    name = "check_lowered"
    phase = Phase.LOOPS
    ensures = (Property.TENSOR_PROGRAMS,)

    def apply(self, module: tvm.IRModule) -> tvm.IRModule:
        """Returns the module unchanged; raises PassError naming all such operators or tensors."""
        operators: dict[str, None] = {}
        shapeless: dict[str, None] = {}
        for function in module.functions.values():
            if isinstance(function, relax.Function):
                operators.update(dict.fromkeys(survivors(function)))
                shapeless.update(_shapeless(function))
        if operators:
            raise PassError(
                f"no tensor program implements {', '.join(operators)}",
                reason="not_lowered",
                pass_name="LegalizeOps",
                operators=list(operators),
            )
        if shapeless:
            raise PassError(
                f"the extents of {', '.join(shapeless)} were lost",
                reason="unknown_shape",
                pass_name="LegalizeOps",
                values=list(shapeless),
            )
        return module


def _shapeless(function: relax.Function) -> dict[str, None]:
    names: dict[str, None] = {}

    def visit(node: Any) -> None:
        if isinstance(node, relax.SeqExpr):
            bindings = [binding for block in node.blocks for binding in block.bindings]
            lost = [
                binding
                for binding in bindings
                if _should_know(binding) and _unknown(binding.var.ty)
            ]
            names.update(dict.fromkeys(str(binding.var.name) for binding in lost))

    relax.analysis.post_order_visit(function, visit)
    return names


# The call of an operator states its type; a call of a Relax function or an If may not.
def _should_know(binding: Any) -> bool:
    value = getattr(binding, "value", None)
    return (
        isinstance(binding, relax.VarBinding)
        and isinstance(value, tvm.ir.Call)
        and isinstance(value.op, tvm.ir.Op)
    )


def _unknown(ty: Any) -> bool:
    return isinstance(ty, relax.TensorType) and not isinstance(ty.shape, relax.ShapeExpr)

"""Checks, before the memory is planned, that every operator became a tensor program and every shape
is known.
"""

from dataclasses import dataclass
from typing import Any

import tvm
from tvm import relax

from compiler.errors import PassError
from compiler.passes.framework.base import Phase

LOWERED = frozenset(
    {
        "relax.call_tir",
        "relax.call_tir_inplace",
        "relax.call_dps_packed",
        "relax.call_pure_packed",
        "relax.tensor_to_shape",
        "relax.shape_to_tensor",
        "relax.memory.view",
        "relax.memory.ensure_zero_offset",
        "relax.reshape",
    }
)
"""The operators that TVM lowers to calls of the virtual machine, where a reshape becomes a view."""


@dataclass(frozen=True)
class CheckLowered:
    """Refuses modules with an operator that LegalizeOps left, or a tensor of unknown extents.

    The results of an If and of a call of a Relax function may have unknown extents: the importers
    cast them right behind it.
    """

    name = "check_lowered"
    phase = Phase.LOOPS

    def apply(self, module: tvm.IRModule) -> tvm.IRModule:
        """Returns the module unchanged; raises PassError naming all such operators or tensors."""
        survivors: dict[str, None] = {}
        shapeless: dict[str, None] = {}
        for function in module.functions.values():
            if isinstance(function, relax.Function):
                _scan(function, survivors, shapeless)
        if survivors:
            raise PassError(
                f"no tensor program implements {', '.join(survivors)}",
                reason="not_lowered",
                pass_name="LegalizeOps",
                operators=list(survivors),
            )
        if shapeless:
            raise PassError(
                f"the extents of {', '.join(shapeless)} were lost",
                reason="unknown_shape",
                pass_name="LegalizeOps",
                values=list(shapeless),
            )
        return module


def _scan(function: relax.Function, survivors: dict[str, None], shapeless: dict[str, None]) -> None:
    def visit(node: Any) -> None:
        if (
            isinstance(node, tvm.ir.Call)
            and isinstance(node.op, tvm.ir.Op)
            and node.op.name.startswith("relax.")
        ):
            name = str(node.op.name)
            # The virtual machine's own operators appear in modules whose memory is planned already.
            if name not in LOWERED and not name.startswith(
                ("relax.vm.", "relax.builtin.", "relax.memory.")
            ):
                survivors[name] = None
        if isinstance(node, relax.SeqExpr):
            bindings = [binding for block in node.blocks for binding in block.bindings]
            lost = [
                binding
                for binding in bindings
                if _should_know(binding) and _unknown(binding.var.ty)
            ]
            shapeless.update(dict.fromkeys(str(binding.var.name) for binding in lost))

    relax.analysis.post_order_visit(function, visit)


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

"""The gate between legalisation and code generation: no operator left over, no shape lost on the
way.
"""

from typing import Any

import tvm
from tvm import relax

from compiler.errors import PassError

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
"""What TVM's lowering to the virtual machine takes; a reshape that moves nothing becomes a view
there.
"""


def check(module: tvm.IRModule) -> None:
    """Raise PassError naming every operator that survived legalisation, or every tensor whose
    extents are unknown.

    A call of a Relax function and an If give tensors without extents on purpose: the importer
    matches them right after.
    """
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


def _scan(function: relax.Function, survivors: dict[str, None], shapeless: dict[str, None]) -> None:
    def visit(node: Any) -> None:
        if (
            isinstance(node, tvm.ir.Call)
            and isinstance(node.op, tvm.ir.Op)
            and node.op.name.startswith("relax.")
        ):
            name = str(node.op.name)
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


def _should_know(binding: Any) -> bool:
    value = getattr(binding, "value", None)
    return (
        isinstance(binding, relax.VarBinding)
        and isinstance(value, tvm.ir.Call)
        and isinstance(value.op, tvm.ir.Op)
    )


def _unknown(ty: Any) -> bool:
    return isinstance(ty, relax.TensorType) and not isinstance(ty.shape, relax.ShapeExpr)

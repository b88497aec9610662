"""Dataflow blocks that end where a run-time value becomes a dim: TVM's fusion moves programs across
that point.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tvm
import tvm_ffi
from tvm import relax, tirx
from tvm.relax.expr_functor import PyExprMutator, mutator


def in_blocks(module: tvm.IRModule) -> tvm.IRModule:
    """The module's bindings in dataflow blocks, none of which both defines a dim by matching a
    shape and uses it.

    FuseOps places a fused program by the tensors it reads, not by the dims of its result.
    """
    module = relax.transform.ConvertToDataflow(min_size=1)(module)
    for gvar, function in list(module.functions.items()):
        if isinstance(function, relax.Function) and any(
            _cuts(block) for block in function.body.blocks
        ):
            module[gvar] = _split(function)
    return module


def _split(function: relax.Function) -> relax.Function:
    function = _Outward().visit_expr(function)
    blocks = [part for block in function.body.blocks for part in _parts(block)]
    body = relax.SeqExpr(blocks, function.body.body)
    return relax.Function(function.params, body, function.ret_ty, function.is_pure, function.attrs)


@mutator
class _Outward(PyExprMutator):  # type: ignore[misc]
    """Makes every variable visible outside its block; TVM's CanonicalizeBindings hides again those
    that need not be.
    """

    def visit_dataflow_var_def_(self, var: relax.DataflowVar) -> relax.Var:
        """The same variable of the visible kind."""
        made = relax.Var(var.name, var.ty)
        self.set_var_remap(var, made)
        return made


def _parts(block: relax.BindingBlock) -> list[relax.BindingBlock]:
    """The block cut before and after every binding that defines dims."""
    if not _cuts(block):
        return [block]
    runs: list[tuple[bool, list[Any]]] = []
    for binding in block.bindings:
        defines = _defines(binding)
        if not runs or runs[-1][0] != defines:
            runs.append((defines, []))
        runs[-1][1].append(binding)
    return [
        relax.BindingBlock(run) if defines else relax.DataflowBlock(run) for defines, run in runs
    ]


def _cuts(block: relax.BindingBlock) -> Sequence[Any]:
    return (
        [binding for binding in block.bindings if _defines(binding)]
        if isinstance(block, relax.DataflowBlock)
        else []
    )


def _defines(binding: Any) -> bool:
    """Whether a binding matches a shape against dims, or a tensor: ConvertLayout loses the value of
    such a match.
    """
    if not isinstance(binding, relax.MatchCast):
        return False
    if isinstance(binding.ty, relax.TensorType):
        return True
    if not isinstance(binding.ty, relax.ShapeType):
        return False
    found: list[Any] = []
    for extent in binding.ty.values or []:
        tvm_ffi.structural_walk(extent, (tirx.Var, found.append), order="post")
    return bool(found)

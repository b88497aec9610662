"""Dataflow blocks that end where a run-time value becomes a dim: TVM's fusion moves programs across
that point.
"""

from collections.abc import Iterable, Sequence, Set
from typing import Any

import tvm
import tvm_ffi
from tvm import relax, tirx
from tvm.relax.expr_functor import PyExprMutator, mutator


def in_blocks(module: tvm.IRModule) -> tvm.IRModule:
    """The module's bindings in dataflow blocks, none of which both defines a dim by matching a
    shape and uses it.

    FuseOps puts a fused program behind the tensors it reads, not behind the dims of its result.
    """
    module = relax.transform.ConvertToDataflow(min_size=1)(module)
    for gvar, function in list(module.functions.items()):
        if isinstance(function, relax.Function) and any(
            _cuts(block) for block in function.body.blocks
        ):
            module[gvar] = _split(function)
    return module


def with_reads_visible(function: relax.Function) -> relax.Function:
    """The function with every variable visible that another block than its own reads: a pass which
    looks through bindings may come to what its block hides.
    """
    if len(function.body.blocks) == 1:
        return function
    hidden: set[Any] = set()
    read: set[Any] = set()
    for block in function.body.blocks:
        own = {b.var for b in block.bindings if isinstance(b.var, relax.DataflowVar)}
        read |= _read(binding.value for binding in block.bindings) - own
        hidden |= own
    read |= _read([function.body.body])
    return _Outward(hidden & read).visit_expr(function) if hidden & read else function


def _read(values: Iterable[Any]) -> set[Any]:
    return {var for value in values for var in relax.analysis.free_vars(value)}


def _split(function: relax.Function) -> relax.Function:
    function = _Outward().visit_expr(function)
    blocks = [part for block in function.body.blocks for part in _parts(block)]
    body = relax.SeqExpr(blocks, function.body.body)
    return relax.Function(function.params, body, function.ret_ty, function.is_pure, function.attrs)


@mutator
class _Outward(PyExprMutator):  # type: ignore[misc]
    """Makes variables visible outside their blocks, all of them unless told which; TVM's
    CanonicalizeBindings hides again those that need not be.
    """

    def __init__(self, chosen: Set[Any] | None = None) -> None:
        super().__init__()
        self._chosen = chosen

    def visit_dataflow_var_def_(self, var: relax.DataflowVar) -> relax.Var:
        """The same variable of the visible kind."""
        if self._chosen is not None and var not in self._chosen:
            return super().visit_dataflow_var_def_(var)
        visible = relax.Var(var.name, var.ty)
        self.set_var_remap(var, visible)
        return visible


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
    """True for a binding that matches a shape against dims, or a tensor: ConvertLayout loses the
    value of such a match.
    """
    if not isinstance(binding, relax.MatchCast):
        return False
    if isinstance(binding.ty, relax.TensorType):
        return True
    if not isinstance(binding.ty, relax.ShapeType):
        return False
    variables: list[Any] = []
    for extent in binding.ty.values or []:
        tvm_ffi.structural_walk(extent, (tirx.Var, variables.append), order="post")
    return bool(variables)

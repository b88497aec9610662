"""Combines matmuls of one tensor with several constant weights, such as the query, key and value
projections of an attention, into one matmul.

Only projections whose results are split into heads are combined: the heads of all of them lie side
by side, and each result is a slice of heads, which attention or a transpose reads in place.
Projections whose results are used whole, such as the two of a gated layer, stay separate, since
FuseOps joins the operators behind each of them to its own matmul.
"""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
import tvm
from tvm import relax
from tvm_ffi import StructuralKey

from compiler.ir.arrays import as_constant, values_of
from compiler.passes.framework.base import ModulePass, Phase
from compiler.passes.match.rewriting import CallRewriter, is_weight, rewrite_functions
from compiler.tir.exprs import op_name

CHANGES = {"relax.add": 0.0, "relax.multiply": 1.0}
"""Operators with a constant for each column that may follow a projection, in this order, and the
constant with which they change nothing.
"""


@dataclass(frozen=True)
class Branch:
    """One projection: `heads`, a variable of [.., h, d], holds `left @ weight` after `changes`.

    changes: by operator, its constant for each column.
    """

    left: Any
    weight: Any
    changes: Mapping[str, np.ndarray]
    heads: Any

    @property
    def extents(self) -> list[Any]:
        """The extents of `heads`."""
        return list(self.heads.ty.shape.values)

    @property
    def count(self) -> int:
        """How many heads there are."""
        return int(self.extents[-2])

    def constant(self, change: str) -> np.ndarray:
        """The constants of an operator of CHANGES, neutral ones if the branch does not have it."""
        neutral = np.full(self.weight.value.shape[1], CHANGES[change], "float32")
        return self.changes.get(change, neutral)


Group = tuple[Branch, ...]


@dataclass(frozen=True)
class CombineProjections(ModulePass):
    """Combines float32 projections of one tensor whose results are split into heads."""

    name = "combine_projections"
    phase = Phase.GRAPH

    def apply(self, module: tvm.IRModule) -> tvm.IRModule:
        """Rewrites every Relax function and drops dead bindings."""
        return relax.transform.DeadCodeElimination()(rewrite_functions(_Rewriter(module)))


def find_groups(block: relax.DataflowBlock) -> list[Group]:
    """Finds groups of two or more branches of one tensor that have heads of one size and no matmul
    of another tensor between them.

    The last condition keeps apart the keys and values that the layers of a decoder compute from one
    encoder: combined, those of all layers would stay in memory during the whole decoder.
    """
    block_reader = _Reader(block)
    groups: list[dict[StructuralKey, list[Branch]]] = []
    left = None
    for binding in block.bindings:
        if not _is_projection(binding.value):
            continue
        # A matmul of another tensor starts a new group, even if the first tensor comes again later.
        if left is None or not binding.value.args[0].same_as(left):
            left = binding.value.args[0]
            groups.append(defaultdict(list))
        branch = block_reader.branch(binding)
        if branch is not None:
            *lead, _, size = branch.extents
            groups[-1][StructuralKey(relax.ShapeExpr([*lead, size]))].append(branch)
    return [tuple(group) for by_size in groups for group in by_size.values() if len(group) > 1]


def _is_projection(call: Any) -> bool:
    if (
        op_name(call) != "relax.matmul"
        or not isinstance(call.args[1], tvm.ir.GenericConst)
        or not is_weight(call.args[1])
    ):
        return False
    return str(call.args[0].ty.dtype) == "float32" and call.args[0].ty.ndim >= 2


class _Reader:
    """Follows values from one binding of a block to the only one that reads them."""

    def __init__(self, block: relax.DataflowBlock) -> None:
        self.users = relax.analysis.udchain(block)
        self.calls = {binding.var: binding.value for binding in block.bindings}

    def branch(self, binding: Any) -> Branch | None:
        """The branch that starts with a matmul, None if it does not end in heads that are
        transposed.
        """
        left, weight = binding.value.args
        columns = int(weight.value.shape[1])
        changes: dict[str, np.ndarray] = {}
        var = self._only_user(binding.var)
        for name in CHANGES:
            constant = (
                _by_column(self.calls[var], columns)
                if var is not None and op_name(self.calls[var]) == name
                else None
            )
            if constant is not None:
                changes[name] = constant
                var = self._only_user(var)
        if var is None or not _splits_heads(self.calls[var], columns):
            return None
        reader = self._only_user(var)
        transposed = reader is not None and op_name(self.calls[reader]) == "relax.permute_dims"
        # Heads that are not transposed belong to no attention: slicing them would cost a copy.
        return Branch(left, weight, changes, var) if transposed else None

    def _only_user(self, var: Any) -> Any:
        """The variable of the only binding that reads `var`, None where there are others or it
        leaves the block.
        """
        users = self.users[var] if isinstance(var, relax.DataflowVar) else []
        return users[0] if len(users) == 1 else None


def _by_column(call: Any, columns: int) -> np.ndarray | None:
    """The constant operand as one number for each column; None if no operand is constant, or it
    varies along another axis.
    """
    for operand in call.args:
        if (
            isinstance(operand, tvm.ir.GenericConst)
            and hasattr(operand.value, "numpy")
            and operand.ty.ndim <= call.ty.ndim
        ):
            value = values_of(operand)
            if value.size in (1, columns) and (value.size == 1 or value.shape[-1] == columns):
                return np.array(np.broadcast_to(value.reshape(-1), columns))
    return None


def _splits_heads(call: Any, columns: int) -> bool:
    """True if a call reshapes [.., columns] to [.., heads, size]."""
    if (
        op_name(call) != "relax.reshape"
        or not isinstance(call.ty.shape, relax.ShapeExpr)
        or call.ty.ndim < 3
    ):
        return False
    known = [int(extent.value) for extent in call.ty.shape.values[-2:] if hasattr(extent, "value")]
    return len(known) == 2 and prod(known) == columns


@relax.expr_functor.mutator
class _Rewriter(CallRewriter):
    def __init__(self, module: tvm.IRModule) -> None:
        super().__init__(module)
        self.groups: dict[Any, Group] = {}
        self.joined: dict[Any, Any] = {}
        self.weights: dict[Any, Any] = {}
        for function in module.functions.values():
            if isinstance(function, relax.Function):
                relax.analysis.post_order_visit(function, self._note)

    def _note(self, node: Any) -> None:
        for block in node.blocks if isinstance(node, relax.SeqExpr) else ():
            for group in find_groups(block) if isinstance(block, relax.DataflowBlock) else ():
                self.groups |= {branch.heads: group for branch in group}

    def visit_var_binding_(self, binding: Any) -> None:
        group = self.groups.get(binding.var)
        if group is None:
            super().visit_var_binding_(binding)
            return
        leader = group[0].heads
        if leader not in self.joined:
            # All branches read one tensor: the combined projection can stand where the first did.
            self.joined[leader] = self._heads(group)
        position = next(
            index for index, branch in enumerate(group) if branch.heads.same_as(binding.var)
        )
        first = sum(branch.count for branch in group[:position])
        part = relax.op.strided_slice(
            self.joined[leader],
            [len(group[0].extents) - 2],
            [first],
            [first + group[position].count],
        )
        self.set_var_remap(binding.var, self.builder_.emit(part, binding.var.name))

    def _heads(self, group: Group) -> Any:
        """Emits the combined projection; returns the heads of all branches, [.., sum of h, d]."""
        value = self.builder_.emit(
            relax.op.matmul(self.visit_expr(group[0].left), self._weight(group))
        )
        for name in CHANGES:
            if any(name in branch.changes for branch in group):
                constant = relax.const(np.concatenate([branch.constant(name) for branch in group]))
                value = self.builder_.emit(relax.Call(tvm.ir.Op.get(name), [value, constant]))
        *lead, _, size = group[0].extents
        return self.builder_.emit(
            relax.op.reshape(
                value, relax.ShapeExpr([*lead, sum(branch.count for branch in group), size])
            )
        )

    def _weight(self, group: Group) -> Any:
        """The weights side by side. Groups of equal weights share one constant, as layers that
        share their weights do.
        """
        key = tuple(branch.weight.__hash__() for branch in group)
        if key not in self.weights:
            self.weights[key] = as_constant(
                np.concatenate([values_of(branch.weight) for branch in group], axis=1)
            )
        return self.weights[key]

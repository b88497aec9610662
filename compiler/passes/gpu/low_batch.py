"""Gives matmuls one kernel for few rows and another for many, chosen by the number of rows at each
call.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import tvm
import tvm_ffi
from tvm import s_tir, tirx
from tvm.s_tir import dlight

from compiler.passes.framework.base import Phase
from compiler.passes.framework.kernel_notes import KernelNote
from compiler.passes.framework.programs import ProgramPass
from compiler.passes.framework.properties import Property
from compiler.passes.gpu.one_row import OneRow
from compiler.passes.gpu.schedule import apply_rule, dlight_rules
from compiler.passes.gpu.trial import refusal

_REDUCE = 2


@dataclass(frozen=True)
class SplitLowBatch(ProgramPass):
    """Rewrites each matmul with a symbolic number of rows into a branch on it, if both kernels take
    the matmul.

    buckets: pairs of the greatest number of rows and how many of them one block computes. The
    matrix kernel takes the matmuls with more rows.
    """

    target: tvm.target.Target
    buckets: tuple[tuple[int, int], ...] = ((2, 2), (8, 4))
    name = "split_low_batch"
    phase = Phase.LOOPS
    requires = (Property.TENSOR_PROGRAMS, Property.FUSED)

    def rewrite(self, func: tirx.PrimFunc) -> tirx.PrimFunc:
        """Schedules such a matmul; another program stays as it is."""
        rows = _rows(func)
        if rows is None or (func.attrs and "tirx.is_scheduled" in func.attrs):
            return func
        few = [
            apply_rule(dlight.gpu.LowBatchGEMV(bucket), self.target, func)
            for _, bucket in self.buckets
        ]
        # The fewest rows of packed words have a kernel of ours.
        few = [apply_rule(OneRow(), self.target, func) or few[0], *few[1:]]
        # One kernel that TVM's rule refuses leaves the matmul to the other rules.
        if any(kernel is None for kernel in few):
            return func
        schedules = (
            apply_rule(rule, stand_in, func)
            for rule, stand_in in dlight_rules(self.target)
            if isinstance(rule, dlight.gpu.Matmul)
        )
        splits = (self._branch(func, rows, few, many) for many in schedules if many is not None)
        return next((split for split in splits if refusal(split, self.target) is None), func)

    def _branch(
        self, func: tirx.PrimFunc, rows: Any, few: Sequence[Any], many: tirx.PrimFunc
    ) -> tirx.PrimFunc:
        """Runs the kernels `few` up to the rows of their buckets, and `many` beyond them."""
        body = many.body
        for (limit, _), kernel in reversed(list(zip(self.buckets, few, strict=True))):
            body = tirx.IfThenElse(tirx.op.tvm_thread_invariant(rows <= limit), kernel.body, body)
        root = s_tir.SBlockRealize([], True, s_tir.SBlock([], [], [], "root", body))
        limits = ", ".join(str(limit) for limit, _ in self.buckets)
        note = KernelNote("LowBatch", f"up to {limits} rows")
        return note.onto(
            func.with_body(root).with_attr(
                {"tirx.is_scheduled": True, "tirx.HoistIfThenElseExprWithBlock": 1}
            )
        )


def _rows(func: tirx.PrimFunc) -> Any:
    """The symbolic extent of the only reduction of `func`; None if there is not exactly one of
    each.
    """
    extents: list[Any] = []

    def visit(block: Any) -> None:
        if any(int(axis.iter_type) == _REDUCE for axis in block.iter_vars):
            extents.append(
                [
                    axis.dom.extent
                    for axis in block.iter_vars
                    if not isinstance(axis.dom.extent, tirx.IntImm)
                ]
            )

    tvm_ffi.structural_walk(func.body, (s_tir.SBlock, visit))
    return extents[0][0] if len(extents) == 1 and len(extents[0]) == 1 else None

"""Stages after a sum of integers, on the integers themselves: programs have the sum as float32,
which holds it exactly.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import tvm_ffi
from tvm import tirx
from tvm.ir.prim import expr as prim

from compiler.passes.cpu.shared.reduction import Epilogue, Output
from compiler.tir.building import store
from compiler.tir.exprs import (
    Expr,
    Table,
    const,
    dtype_of,
    load,
    loads,
    nodes,
    replace_loads,
    rewrite,
    substitute,
    uses,
)


@dataclass(frozen=True)
class IntegerEpilogue:
    """bias: what a sum begins with, which depends on the column alone, None for nothing; total: a
    buffer of one int32, which stands for the sum in the values of `outputs`.
    """

    bias: Expr | None
    total: Any
    outputs: tuple[Output, ...]

    @classmethod
    def of(cls, epilogue: Epilogue, column: Any) -> "IntegerEpilogue":
        """The same outputs of a sum in int32."""
        total = tirx.decl_buffer([1], "int32", name="total")
        sum_ = load(total, [const(0)])
        outputs = tuple(
            Output(out.target, rewrite(out.value, partial(_as_integer, epilogue.total, sum_)))
            for out in epilogue.outputs
        )
        addends = [each for out in outputs for each in _addends(out.value, total)]
        if not _is_bias(addends, column):
            return cls(None, total, outputs)
        biased = tuple(
            Output(out.target, rewrite(out.value, partial(_without_bias, total, sum_)))
            for out in outputs
        )
        return cls(addends[0], total, biased)

    def begin(self, position: Table) -> Expr:
        """The value that the sum at a position begins with."""
        return tirx.const(0, "int32") if self.bias is None else substitute(self.bias, position)

    def store(self, result: Expr, position: Table) -> None:
        """Emit the stores of all outputs of a sum, which is at a position of the axes."""
        for out in self.outputs:
            value = replace_loads(out.value, self.total, result, position)
            store(out.target.source, value, substitute(out.target.indices[0], position))


def _as_integer(buffer: Any, total: Expr, node: Expr) -> Expr | None:
    """The int32 sum for a cast of the float one, or of an integer to float32 and back; for the sum
    by itself its cast.
    """
    if isinstance(node, prim.Cast) and dtype_of(node) == "int32":
        back = node.value
        if isinstance(back, prim.Cast) and dtype_of(back) == "float32":
            back = back.value
        return total if _reads(back, buffer) else None
    return total.astype(dtype_of(node)) if _reads(node, buffer) else None


def _reads(node: Expr, buffer: Any) -> bool:
    return type(node) is type(load(buffer, [const(0)])) and node.source.same_as(buffer)


def _addends(value: Expr, total: Any) -> Iterator[Expr | None]:
    """The addends of all occurrences of the sum; None for one that nothing is added to."""
    bare = rewrite(value, partial(_without_bias, total, tirx.const(0, "int32")))
    if any(read.source.same_as(total) for read in loads(bare)):
        yield None
    for node in nodes(value):
        if _is_biased(total, node):
            yield node.b


def _is_biased(total: Any, node: Expr) -> bool:
    return isinstance(node, prim.Add) and _reads(node.a, total)


def _without_bias(total: Any, sum_: Expr, node: Expr) -> Expr | None:
    return sum_ if _is_biased(total, node) else None


def _is_bias(addends: list[Expr | None], column: Any) -> bool:
    """True if every occurrence has the same addend, which follows from the column."""
    first = addends[0] if addends else None
    if first is None or not all(_equal(first, each) for each in addends):
        return False
    variables = [node for node in nodes(first) if isinstance(node, tirx.Var)]
    return uses(first, column) and all(var.same_as(column) for var in variables)


def _equal(lhs: Expr, rhs: Expr | None) -> bool:
    return rhs is not None and bool(tvm_ffi.structural_equal(lhs, rhs, map_free_vars=False))

"""Checks the extents of tensors before the virtual machine takes memory for them.

Its allocations multiply extents as they come: products of 64 bits wrap around, and what a run
computed may be negative. Standalone drivers check the same in C.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

import tvm
from tvm import relax, tirx
from tvm.ir.prim import expr as prim
from tvm_ffi import StructuralKey

from compiler.ir.graph.checks import ATTRIBUTE, FIRST, messages_of
from compiler.ir.imported import Ranges
from compiler.passes.framework.base import ModulePass, Phase
from compiler.passes.framework.bindings import bindings_within
from compiler.passes.match.rewriting import CallRewriter, rewrite_functions
from compiler.tir import ranges
from compiler.tir.exprs import bits_of, op_name

MESSAGE = "a tensor has a negative extent, or takes more memory than there can be"

_SHAPES: dict[str, tuple[int, Callable[[Any], str]]] = {
    "relax.builtin.alloc_tensor": (0, lambda call: str(call.args[1].value)),
    "relax.memory.alloc_storage": (0, lambda call: "uint8"),
    "relax.memory.alloc_tensor": (2, lambda call: str(call.args[3].value)),
    "relax.reshape": (1, lambda call: str(call.args[0].ty.dtype)),
    "relax.memory.view": (1, lambda call: str(call.args[0].ty.dtype)),
}
"""Of each operator that gives a tensor its extents: which argument they are, and the dtype."""


@dataclass(frozen=True)
class CheckExtents(ModulePass):
    """Every run fails that would break the rule for extents (see `compiler.tir.ranges`).

    ranges: of the dims of `main`, by which most tensors need no check. What the dims of its inputs
    alone decide is checked once, before any memory is taken.
    """

    ranges: Ranges
    name = "check_extents"
    phase = Phase.VIRTUAL_MACHINE

    def apply(self, module: tvm.IRModule) -> tvm.IRModule:
        """Adds checks to Relax functions that allocate, and their message to those of `main`."""
        messages = dict(messages_of(module))
        number = FIRST + len(messages)
        rewriter = _Rewriter(module, self.ranges, number)
        checked = rewrite_functions(rewriter)
        if not rewriter.checks:
            return module
        messages[str(number)] = MESSAGE
        checked["main"] = checked["main"].with_attr(ATTRIBUTE, messages)
        return checked


@relax.expr_functor.mutator
class _Rewriter(CallRewriter):
    """Puts a check in front of what takes memory; checks: how many there are."""

    def __init__(self, module: tvm.IRModule, declared: Ranges, number: int) -> None:
        super().__init__(module)
        self.checks = 0
        self._declared = {dim: ranges.of_dim(limits) for dim, limits in declared.items()}
        self._number = tirx.IntImm("int64", number)
        self._ranges: dict[Any, ranges.Range] = {}
        self._early: set[Any] = set()
        self._waiting: list[Any] = []
        self._depth = 0

    def visit_function_(self, op: relax.Function) -> relax.Expr:
        self._early = set(_dims_of(op.params))
        self._ranges = dict.fromkeys(self._early, ranges.OF_TENSORS)
        self._ranges |= {dim: self._declared[dim] for dim in self._early & self._declared.keys()}
        calls = [value for _, value in bindings_within(op.body)]
        self._waiting = [rule for call in calls for rule in self._rules(call, early=True)]
        return super().visit_function_(op)

    def visit_if_(self, op: relax.If) -> relax.Expr:
        self._depth += 1
        try:
            return super().visit_if_(op)
        finally:
            self._depth -= 1

    def visit_call_(self, call: relax.Call) -> relax.Expr:
        if op_name(call) in _SHAPES:
            waiting = self._waiting
            if self._depth == 0:
                self._waiting = []
            elif waiting:  # no check of all comes before the branch
                waiting = self._rules(call, early=True)
            self._check([*waiting, *self._rules(call, early=False)])
        return super().visit_call_(call)

    def _check(self, rules: Sequence[Any]) -> None:
        distinct = {StructuralKey(rule): rule for rule in rules}
        if not distinct:
            return
        self.checks += 1
        number = tirx.Select(
            reduce(tirx.And, distinct.values()), self._number, tirx.IntImm("int64", 0)
        )
        shape = self.builder_.emit(relax.ShapeExpr([number]))
        self.builder_.match_cast(shape, relax.ShapeType([self._number]))

    def _rules(self, call: Any, *, early: bool) -> list[Any]:
        """The conditions on what a call allocates by the dims of parameters alone, or by others."""
        if op_name(call) not in _SHAPES:
            return []
        position, dtype_of = _SHAPES[op_name(call)]
        shape = call.args[position]
        if not isinstance(shape, relax.ShapeExpr):
            return []
        dims = {dim for extent in shape.values for dim in tirx.analysis.undefined_vars(extent)}
        if not dims or (dims <= self._early) != early:
            return []
        return self._conditions(list(shape.values), bits_of(dtype_of(call)) // 8)

    def _conditions(self, extents: Sequence[Any], item: int) -> list[Any]:
        within = [ranges.range_of(extent, self._ranges) for extent in extents]
        if ranges.is_small(within, item):
            return []
        least, most = tirx.IntImm("int64", 0), tirx.FloatImm("float64", float(ranges.MOST_BYTES))
        size: Any = tirx.FloatImm("float64", float(item))
        rules = []
        for extent, (low, high) in zip(extents, within, strict=True):
            approximate = _as_float64(extent)
            if low < 0:
                rules += [extent >= least, approximate >= tirx.FloatImm("float64", -1.0)]
            if high > ranges.MOST_BYTES:
                rules.append(approximate <= most)
            size = size * tirx.max(approximate, tirx.FloatImm("float64", 1.0))
        return [*rules, size <= most]


def _dims_of(params: Sequence[Any]) -> set[Any]:
    """The dims that the shapes of parameters define."""
    shapes = [getattr(param.ty, "shape", None) for param in params]
    return {
        extent
        for shape in shapes
        if isinstance(shape, relax.ShapeExpr)
        for extent in shape.values
        if isinstance(extent, tirx.Var)
    }


def _as_float64(expr: Any) -> Any:
    """An extent as float64, whose sums and products are near the true ones where those of 64 bits
    have wrapped around.
    """
    kinds = (prim.Add, prim.Sub, prim.Mul, prim.Min, prim.Max)
    if isinstance(expr, kinds):
        return type(expr)(_as_float64(expr.a), _as_float64(expr.b))
    return tirx.Cast("float64", expr)

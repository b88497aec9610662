"""Decides conditions that have the same value throughout the declared dim ranges: those of
branches, and those of loops over threads.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import tvm
import tvm_ffi
from tvm import relax, sym, tirx
from tvm.ir.prim import expr as prim

from compiler.ir.imported import Ranges
from compiler.passes.framework.base import ModulePass, Phase
from compiler.passes.framework.properties import Property
from compiler.tir.exprs import Expr, as_int, loads, nodes, op_name, rewrite
from compiler.tir.loops import PARALLEL_IF, seq, with_body

Bounds = tuple[int, int]
"""Least and greatest value."""

_ENTRY = "main"
_CALLS = ("relax.call_tir", "relax.call_tir_inplace")
_DIVISIONS = (prim.Div, prim.Mod, prim.FloorDiv, prim.FloorMod)
_COMPARISONS = (prim.GE, prim.GT, prim.LE, prim.LT)
_ALWAYS = tirx.IntImm("bool", 1)
_ANYTHING = (sym.ConstIntBound.NEG_INF, sym.ConstIntBound.POS_INF)


@dataclass(frozen=True)
class DecideBranches(ModulePass):
    """Replaces each branch that the ranges of the dims decide by the side that is taken, and each
    loop that is parallel where a condition holds by one that always is or never.
    """

    ranges: Ranges
    name = "decide_branches"
    phase = Phase.LOOPS
    requires = (Property.SCHEDULED,)

    def apply(self, module: tvm.IRModule) -> tvm.IRModule:
        """Rewrites every tensor program whose dims all calls bound."""
        known = known_bounds(module, self.ranges)
        functions = {
            gvar: _decide(func, known[gvar]) if known.get(gvar) else func
            for gvar, func in module.functions.items()
        }
        return tvm.IRModule(functions, attrs=module.attrs, global_infos=module.global_infos)


def known_bounds(module: tvm.IRModule, ranges: Ranges) -> dict[Any, dict[Any, Bounds]]:
    """For each tensor program, bounds of its dims that hold at all its calls."""
    dims = {
        var: (dim.lowest, _ANYTHING[1] if dim.highest is None else dim.highest)
        for var, dim in ranges.items()
    }
    bounds: dict[Any, dict[Any, Bounds]] = {}
    for name, caller in module.functions.items():
        if not isinstance(caller, relax.Function):
            continue
        # Only `main` has the declared dims: those of other functions are variables of their own.
        params = caller.params if name.name_hint == _ENTRY else []
        declared = {
            var for param in params for var in relax.analysis.definable_tir_vars_in_type(param.ty)
        }
        analyzer = _analyzer({var: dims[var] for var in declared if var in dims})
        for call in _find_nodes(caller, tvm.ir.Call):
            if op_name(call) in _CALLS:
                # A program that several calls share has to be right for all of them.
                at_call = _argument_bounds(call, module[call.args[0]], analyzer)
                earlier = bounds.get(call.args[0], at_call)
                bounds[call.args[0]] = {
                    var: (min(low, earlier[var][0]), max(high, earlier[var][1]))
                    for var, (low, high) in at_call.items()
                    if var in earlier
                }
            else:
                # Passed as a value, a program may be called with anything.
                bounds.update({arg: {} for arg in call.args if isinstance(arg, tvm.ir.GlobalVar)})
    return bounds


def _argument_bounds(
    call: relax.Call, func: tirx.PrimFunc, analyzer: sym.Analyzer
) -> dict[Any, Bounds]:
    """Bounds, at this call, of the dims that are an extent of an argument of the program."""
    arguments = call.args[1].fields if isinstance(call.args[1], relax.Tuple) else [call.args[1]]
    bounds: dict[Any, Bounds] = {}
    for param, argument in zip(func.params, arguments, strict=False):
        extents = getattr(getattr(argument.ty, "shape", None), "values", None)
        if extents is not None and hasattr(param.ty, "shape"):
            for extent, value in zip(param.ty.shape, extents, strict=True):
                if isinstance(extent, tvm.ir.Var):
                    bounds[extent] = _bounds(value, analyzer)
    return bounds


def _decide(func: tirx.PrimFunc, known: dict[Any, Bounds]) -> tirx.PrimFunc:
    analyzer = _analyzer(known)

    @cache
    def cells() -> _Cells:
        # Most kernels have no branch.
        return _Cells(func)

    def choose(node: Any) -> Any:
        holds = _holds(cells().inline_values(node.condition), analyzer)
        if holds is None:
            return node
        return node.then_case if holds else seq(node.else_case)

    def decide(node: Any) -> Any:
        if str(node.attr_key) != PARALLEL_IF:
            return node
        holds = _holds(cells().inline_values(node.value), analyzer)
        if holds is None:
            return node
        return tirx.AttrStmt(node.node, PARALLEL_IF, _ALWAYS, node.body) if holds else node.body

    steps = ((tirx.IfThenElse, choose), (tirx.AttrStmt, decide))
    return with_body(func, tvm_ffi.structural_map(func.body, steps))


def _find_nodes(body: Any, kind: type) -> list[Any]:
    """Every node of a kind in `body`."""
    (matching,) = _find_kinds(body, (kind,))
    return matching


def _find_kinds(body: Any, kinds: Sequence[type]) -> list[list[Any]]:
    """Every node of each kind, in one walk of `body`."""
    matching: list[list[Any]] = [[] for _ in kinds]
    steps = tuple((kind, each.append) for kind, each in zip(kinds, matching, strict=True))
    tvm_ffi.structural_walk(body, steps, order="pre")
    return matching


class _Cells:
    """The values of a function's variables, and of its buffers of one element that are written
    once.
    """

    def __init__(self, func: tirx.PrimFunc) -> None:
        writes, binds, calls = _find_kinds(func.body, (tirx.BufferStore, tirx.Bind, tvm.ir.Call))
        written = Counter(node.buffer for node in writes)
        # A buffer whose address is taken may be written by the call that takes it.
        pointed = {
            load.source
            for call in calls
            if op_name(call) == "tirx.address_of"
            for load in loads(call)
        }
        single = [
            node
            for node in writes
            if written[node.buffer] == 1 and node.buffer not in pointed and not loads(node.value)
        ]
        self._cells = {
            node.buffer: node.value
            for node in single
            if list(map(as_int, node.buffer.shape)) == [1]
        }
        self._values = {node.var: node.value for node in binds}

    def inline_values(self, expr: Expr) -> Expr:
        """Replaces variables and loads of known value in `expr` by these values."""

        def value_of(node: Expr) -> Expr | None:
            value = None
            if isinstance(node, tvm.ir.TensorLoad):
                value = self._cells.get(node.source)
            elif isinstance(node, tvm.ir.Var):
                value = self._values.get(node)
            return None if value is None else self.inline_values(value)

        return rewrite(expr, value_of)


def _holds(condition: Expr, analyzer: sym.Analyzer) -> bool | None:
    """True if the condition always holds, False if never, None if it varies or has no bounds."""
    if isinstance(condition, prim.And):
        # One side that never holds decides a conjunction, even if the other is not known.
        either = [_holds(part, analyzer) for part in (condition.a, condition.b)]
        return False if False in either else None if None in either else True
    if not isinstance(condition, _COMPARISONS) or any(
        isinstance(node, _DIVISIONS) for node in nodes(condition)
    ):
        return None  # TVM's analyzer fails on some nested divisions.
    (low, high), (least, most) = (_bounds(side, analyzer) for side in (condition.a, condition.b))
    match condition:
        case prim.GE():
            return True if low >= most else False if high < least else None
        case prim.GT():
            return True if low > most else False if high <= least else None
        case prim.LE():
            return True if high <= least else False if low > most else None
        case _:
            return True if high < least else False if low >= most else None


def _analyzer(known: dict[Any, Bounds]) -> sym.Analyzer:
    analyzer = sym.Analyzer()
    for var, bounds in known.items():
        analyzer.update(var, sym.ConstIntBound(*bounds))
    return analyzer


def _bounds(expr: Expr, analyzer: sym.Analyzer) -> Bounds:
    if any(isinstance(node, _DIVISIONS) for node in nodes(expr)):
        return _ANYTHING
    bound = analyzer.const_int_bound(expr)
    return bound.min_value, bound.max_value

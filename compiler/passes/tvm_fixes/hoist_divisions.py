"""Takes divisions out of what a loop computes under conditions.

LLVM's loop vectorizer computes a division that stands behind a condition for those lanes alone
that meet it, but takes the address of a masked vector from the first lane. Where the first lane
does not meet the condition, as at the left border of a padded row, that address has no division in
it and the elements come from elsewhere (LLVM 22).

Upstream: llvm/llvm-project#142957 is the same fault of addresses that a predicated division goes
into, and was closed in 2025; LLVM 22 still has this form of it. The pass can go when its tests pass
without it.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import tvm
import tvm_ffi
from tvm import tirx
from tvm_ffi import VisitInterrupt, WalkResult

from compiler.passes.framework.base import Phase
from compiler.passes.framework.programs import ProgramPass
from compiler.passes.framework.properties import Property
from compiler.tir.building import emit, let_opaque, statements
from compiler.tir.exprs import as_int, children, const, dtype_of, is_choice, nodes
from compiler.tir.loops import with_body

_DIVISIONS = (tirx.Div, tirx.Mod, tirx.FloorDiv, tirx.FloorMod)
_SIMPLE = (tvm.ir.Var, tirx.Add, tirx.Sub, tirx.Mul, tirx.Min, tirx.Max, tirx.IntImm)

Divisions = dict[int, Any]
"""Divisions by the address of their node, which many expressions of a program may share."""


@dataclass(frozen=True)
class HoistDivisions(ProgramPass):
    """Computes divisions that stay the same throughout a loop, but stand behind a condition inside
    it, before the loop.
    """

    name = "hoist_divisions"
    phase = Phase.LOWERED_LOOPS
    requires = (Property.FLAT_BUFFERS,)

    def rewrite(self, func: tirx.PrimFunc) -> tirx.PrimFunc:
        """Rewrites a program if it divides by what only run time knows."""
        return with_body(func, _Search().settle(func.body))


@dataclass
class _Contents:
    """The contents of a statement or expression: the divisions of plain integers, which of them
    stand behind a condition of its own, and the variables that it defines.
    """

    divisions: Divisions = field(default_factory=dict)
    hidden: Divisions = field(default_factory=dict)
    defined: set[Any] = field(default_factory=set)

    def add(self, inner: "_Contents", conditional: bool = False) -> None:
        self.divisions |= inner.divisions
        self.hidden |= inner.divisions if conditional else inner.hidden
        self.defined |= inner.defined


_NOTHING = _Contents()


class _Search:
    """Finds and moves the divisions of one function; a shared expression is looked at once."""

    def __init__(self) -> None:
        # By address, with the node: without a reference to it an address would be used again.
        self._known: dict[int, tuple[Any, _Contents]] = {}

    def settle(self, body: Any) -> Any:
        if not _divides(body) or not self._statement(body).hidden:
            return body
        return tvm_ffi.structural_mutate(body, [(tirx.For, self._loop)])

    def _loop(self, loop: Any, mutator: Any) -> Any:
        """The loop behind the divisions that it needs, loops inside it first."""
        if not self._inside(loop).hidden:
            return loop
        loop = mutator.default_mutate(loop)
        with statements() as body:
            # What is a division of quotients that are known now may be steady as well.
            while divisions := self._steady(loop):
                quotients: Divisions = {}
                for equal in _group(divisions):
                    # By way of memory: TVM would put a value back where it is used.
                    quotient = let_opaque("quotient", _guarded(equal[0]))
                    quotients |= {division.__chandle__(): quotient for division in equal}
                loop = _replace(loop, quotients)
            emit(loop)
        return body.stmt

    def _steady(self, loop: Any) -> list[Any]:
        """The divisions behind conditions inside the loop, of nothing that the loop defines."""
        contents = self._inside(loop)
        return [
            division
            for division in contents.hidden.values()
            if not any(
                part in contents.defined for part in nodes(division) if isinstance(part, tvm.ir.Var)
            )
        ]

    def _inside(self, loop: Any) -> _Contents:
        key = loop.__chandle__()
        if key not in self._known:
            # Most loops divide nothing, and then it does not matter what they define.
            contents = self._statement(loop.body) if _divides(loop.body) else _Contents()
            contents.defined.add(loop.loop_var)
            self._known[key] = loop, contents
        return self._known[key][1]

    def _statement(self, stmt: Any) -> _Contents:
        contents = _Contents()

        def expression(node: Any) -> Any:
            contents.add(self._expression(node))
            return WalkResult.SKIP

        def branch(node: Any) -> Any:
            contents.add(self._expression(node.condition))
            for case in (node.then_case, node.else_case):
                if case is not None:
                    contents.add(self._statement(case), conditional=True)
            return WalkResult.SKIP

        def loop(node: Any) -> Any:
            contents.add(self._expression(node.extent))
            contents.add(self._inside(node))
            return WalkResult.SKIP

        def define(node: Any) -> None:
            contents.defined.add(node.var)

        tvm_ffi.structural_walk(
            stmt,
            (
                (tirx.IfThenElse, branch),
                (tirx.For, loop),
                (tirx.Bind, define),
                (tvm.ir.Expr, expression),
            ),
            order="pre",
        )
        return contents

    def _expression(self, expr: Any) -> _Contents:
        key = expr.__chandle__()
        if key not in self._known:
            self._known[key] = expr, self._read(expr)
        return self._known[key][1]

    def _read(self, expr: Any) -> _Contents:
        parts = children(expr)
        if not parts:
            return _NOTHING
        # The first part of a choice is its condition.
        choice = isinstance(expr, tirx.Select) or is_choice(expr)
        own, bound = isinstance(expr, _DIVISIONS) and _plain(expr), isinstance(expr, tirx.Let)
        results = [
            (result, choice and index > 0)
            for index, result in enumerate(map(self._expression, parts))
            if result is not _NOTHING
        ]
        if not own and not bound and len(results) < 2 and not any(hidden for _, hidden in results):
            return results[0][0] if results else _NOTHING
        contents = _Contents()
        for result, hidden in results:
            contents.add(result, hidden)
        if own:
            contents.divisions[expr.__chandle__()] = expr
        if bound:
            contents.defined.add(expr.var)
        return contents


def _divides(body: Any) -> bool:
    """Checks that anything is divided by what only run time knows: most kernels do not."""
    interrupted = tvm_ffi.structural_walk(
        body,
        (_DIVISIONS, lambda node: VisitInterrupt(node) if as_int(node.b) is None else None),
        order="pre",
    )
    return interrupted is not None


def _plain(division: Any) -> bool:
    """Checks that this is an int64 division by what only run time knows, of sums and products."""
    return (
        dtype_of(division) == "int64"
        and as_int(division.b) is None
        and all(isinstance(part, _SIMPLE) for part in nodes(division) if part is not division)
    )


def _guarded(division: Any) -> Any:
    """The division, by one instead of zero: the condition may be what keeps zero away."""
    below, zero, one = division.b, const(0), const(1)
    return type(division)(division.a, tirx.Select(tirx.EQ(below, zero), one, below))


def _group(divisions: Iterable[Any]) -> list[list[Any]]:
    """The divisions in groups of equal ones, in the order of their first."""
    groups: list[list[Any]] = []
    for division in divisions:
        for group in groups:
            if tvm_ffi.structural_equal(group[0], division):
                group.append(division)
                break
        else:
            groups.append([division])
    return groups


def _replace(loop: Any, quotients: Divisions) -> Any:
    def replace(node: Any) -> Any:
        return quotients.get(node.__chandle__(), node)

    return tvm_ffi.structural_map(loop, [(_DIVISIONS, replace)], order="pre")

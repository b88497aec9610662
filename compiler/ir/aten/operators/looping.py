"""prim::Loop: unrolled where its trips are few and certain, else compiled as a loop."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from compiler.ir.aten import structure as st
from compiler.ir.aten.memory import Cell
from compiler.ir.aten.node import Node
from compiler.ir.aten.operators.branching import refuse_sharing, results, truth
from compiler.ir.aten.registry import control
from compiler.ir.graph.builder import Builder
from compiler.ir.graph.values import Known, Tensor, Value
from compiler.ir.ops.shape import control as ctl
from compiler.ir.shapes import extents as ex
from compiler.ir.shapes.extents import Extent

ENDLESS = 1 << 62
"""The trip count of a loop that its condition alone ends."""
ALIASED = "a tensor that a loop changes in place is read after it under another name"


@control("prim::Loop")
def loop(b: Builder, node: Node) -> Any:
    """body(iteration, state) -> condition, state, while the condition holds and fewer than `trips`
    are done.
    """
    trips, go, *state = node.args
    go = truth(b, go)
    if go is False or b.facts.decide(ex.less_equal(trips, 0)) is True:
        return results(state)
    count = _count(b, node, b.facts.simplify(trips), go, state)
    if count is not None:
        return results(_iterated(node, state, count)[1])
    return results(_Compiled(node, trips, go, state).run())


def _body(node: Node) -> Any:
    return next(iter(node.raw.blocks()))


def _endures(node: Node) -> bool:
    """True if the body's condition is the constant true: a `for` without a way out."""
    raw = next(iter(_body(node).outputs())).node()
    return bool(raw.kind() == "prim::Constant" and raw.output().toIValue() is True)


def _count(b: Builder, node: Node, trips: Any, go: Any, state: Sequence[Any]) -> int | None:
    """The number of iterations where import can tell and it is small."""
    if go is not True or (not isinstance(trips, int) and _endures(node)):
        return None
    if _endures(node):
        return trips if trips <= ctl.UNROLLED else None
    limit = min(trips, ctl.UNROLLED) if isinstance(trips, int) else ctl.UNROLLED
    with node.memory.trial(), b.block():
        done, _ = _iterated(node, state, limit)
    if done is None or (done == limit and not (isinstance(trips, int) and trips <= ctl.UNROLLED)):
        return None
    return (
        done
        if isinstance(trips, int) or b.facts.decide(ex.greater_equal(trips, done)) is True
        else None
    )


def _iterated(node: Node, state: Sequence[Any], limit: int) -> tuple[int | None, list[Any]]:
    """At most `limit` iterations written out: how many there were, None where only run time knows,
    and the state after them.
    """
    for iteration in range(limit):
        condition, *state = once(node, iteration, state)
        going = truth(node.builder, condition)
        if not isinstance(going, bool):
            return None, list(state)
        if not going:
            return iteration + 1, list(state)
    return limit, list(state)


def once(node: Node, iteration: Any, state: Sequence[Any]) -> list[Any]:
    """One run of the body."""
    scope = node.scope.inner()
    for raw, value in zip(_body(node).inputs(), [iteration, *state], strict=True):
        scope.bind(raw, value)
    return scope.run(_body(node))


@dataclass
class _Trial:
    """The effects of one iteration: forms after it, outer cells it writes, carried values it writes
    in place, items a list gains.
    """

    forms: list[st.Form]
    cells: dict[Cell, st.Form]
    written: list[bool]
    gains: dict[int, Extent]


class _Compiled:
    """One loop that only run time ends; `forms` and `cells` say what travels from iteration to
    iteration.
    """

    def __init__(self, node: Node, trips: Any, go: Any, state: Sequence[Any]) -> None:
        self.node, self.trips, self.go, self.state = node, trips, go, list(state)
        self.b, self.memory = node.builder, node.memory
        self.forms = [st.form_of(self.memory, value) for value in state]
        self.cells: dict[Cell, st.Form] = {}
        self.written = [False] * len(self.forms)
        self.gains: dict[int, Extent] = {}

    def run(self) -> list[Any]:
        """The state after the loop."""
        self._settle()
        outer = [
            cell
            for value, written in zip(self.state, self.written, strict=True)
            if written
            for cell in st.cells_of(value)
        ]
        refuse_sharing([*outer, *self.cells], "values that a loop carries")
        self._outer = outer
        initial = self._initial()
        refuse_sharing(
            [*set(outer), *{cell for cell in outer if cell.copied}],
            "a value that a loop carries and an item of a list",
        )
        trips = (
            None if isinstance(self.trips, int) and self.trips >= ENDLESS else Known.of(self.trips)
        )
        go = None if self.go is True else Known.of(self.go, "bool")
        tensors = ctl.loop(self.b, trips, go, initial, self._step)
        restated = iter(
            [self._restated(index, tensor, initial[index]) for index, tensor in enumerate(tensors)]
        )
        values = [st.rebuild(self.memory, form, restated) for form in self.forms]
        for cell, form in self.cells.items():
            st.restore(self.memory, form, cell, restated)
        for cell in outer:
            self.memory.spoil(cell, ALIASED)
        return values

    def _settle(self) -> None:
        """Find the carried values: import the body on trial until no iteration changes a form."""
        while True:
            trial = self._try()
            forms = [st.join(self.b, p, q) for p, q in zip(self.forms, trial.forms, strict=True)]
            cells = dict(self.cells)
            for cell, form in trial.cells.items():
                cells[cell] = st.join(
                    self.b, self.cells.get(cell) or st.content_form(self.memory, cell), form
                )
            settled = forms == self.forms and cells == self.cells
            self.forms, self.cells, self.written, self.gains = (
                forms,
                cells,
                trial.written,
                trial.gains,
            )
            if settled:
                return

    def _try(self) -> _Trial:
        memory, start, dims = self.memory, self.memory.serial, set(self.b.facts.symbols)
        pushed = len(memory.pushed)
        with memory.trial() as journal, self.b.block():
            leaves = [self._placeholder(leaf) for leaf in self._leaves(self.state)]
            carried = self._enter(iter(leaves))
            index = self._placeholder(Known.of(0))
            _, *after = once(self.node, self._index(index), carried)
            written = [any(cell in journal for cell in st.cells_of(value)) for value in carried]
            if any(written):
                outside = [
                    cell for value in after for cell in st.cells_of(value) if cell.serial <= start
                ]
                refuse_sharing(
                    [cell for value in after for cell in st.cells_of(value)] + outside * 2,
                    "values that a loop carries",
                )
            outer = {
                cell: st.content_form(memory, cell) for cell in journal if cell.serial <= start
            }
            forms = [st.outside(self.b, st.form_of(memory, value), dims) for value in after]
            gains = self._gained(leaves, self._leaves(after, forms))
            lasting = {
                cell
                for *pair, yes in zip(carried, after, written, strict=True)
                if yes
                for v in pair
                for cell in st.cells_of(v)
            }
            refuse_sharing(
                [*lasting, *set(memory.pushed[pushed:])],
                "a value that a loop carries and an item of a list",
            )
            return _Trial(forms, outer, written, gains)

    def _gained(self, before: Sequence[Value], after: Sequence[Value]) -> dict[int, Extent]:
        """By how much the first extent of each travelling tensor grows in an iteration, where that
        is certain.
        """
        if len(before) != len(after):
            return {}
        growth = {}
        for index, (p, q) in enumerate(zip(before, after, strict=True)):
            if len(p.shape) == len(q.shape) and p.shape:
                grown = self.b.facts.simplify(ex.sub(q.shape[0], p.shape[0]))
                if isinstance(grown, int) and grown > 0:
                    growth[index] = grown
        return growth

    def _leaves(self, values: Sequence[Any], forms: Sequence[st.Form] | None = None) -> list[Value]:
        carried = (
            [
                leaf
                for form, value in zip(self.forms, values, strict=True)
                for leaf in self._of(form, value)
            ]
            if forms is None or forms == self.forms
            else []
        )
        return carried + [
            leaf
            for cell, form in self.cells.items()
            for leaf in st.content_leaves(self.memory, form, cell)
        ]

    def _of(self, form: st.Form, value: Any) -> list[Value]:
        return st.leaves(self.memory, form, value)

    def _placeholder(self, leaf: Value) -> Tensor:
        """A tensor as the body sees it: of known shape, of unknown content."""
        return ctl._parameter(self.b, leaf.dtype, leaf.shape)

    def _enter(self, tensors: Any) -> list[Any]:
        """The state inside the body, in cells of its own; outer cells hold what the last iteration
        left.
        """
        carried = [st.rebuild(self.memory, form, tensors) for form in self.forms]
        for cell, form in self.cells.items():
            st.restore(self.memory, form, cell, tensors)
        return carried

    def _index(self, index: Value) -> Any:
        raw = next(iter(_body(self.node).inputs()))
        return self.b.known_counts(index, "i").scalars()[0] if list(raw.uses()) else 0

    def _step(self, index: Value, current: Sequence[Value]) -> tuple[Value, Sequence[Value]]:
        with self.memory.trial():
            carried = self._enter(iter(current))
            for cell in self._outer:
                self.memory.spoil(cell, ALIASED)
            condition, *after = once(self.node, self._index(index), carried)
            return self.b.tensor(Known.of(condition, "bool")), self._leaves(after)

    def _initial(self) -> list[Value]:
        """The state before the first iteration; a list that is still empty takes its items' extents
        from a trial.
        """
        initial = self._leaves(self.state)
        empty = [i for i, leaf in enumerate(initial) if i in self._stacks() and leaf.shape[0] == 0]
        if not empty:
            return initial

        def items() -> list[Value]:
            with self.memory.trial():
                carried = self._enter(iter([self._placeholder(leaf) for leaf in initial]))
                _, *after = once(self.node, self._index(self._placeholder(Known.of(0))), carried)
                leaves = self._leaves(after)
                return [
                    Tensor(self.b.tensor(leaves[i]).expr, leaves[i].shape[1:], leaves[i].dtype)
                    for i in empty
                ]

        for i, stack in zip(empty, ctl.empty_stacks(self.b, items), strict=True):
            initial[i] = stack
        return initial

    def _stacks(self) -> set[int]:
        """Which travelling tensors are stacks of a list's items."""
        flags = [flag for form in (*self.forms, *self.cells.values()) for flag in _growing(form)]
        return {index for index, flag in enumerate(flags) if flag}

    def _restated(self, index: int, tensor: Value, initial: Value) -> Value:
        """A stack whose length follows from the number of iterations, with that length."""
        if (
            index not in self._stacks()
            or index not in self.gains
            or not _endures(self.node)
            or self.go is not True
        ):
            return tensor
        length = self.b.facts.simplify(
            ex.add(initial.shape[0], ex.mul(self.gains[index], ex.maximum(self.trips, 0)))
        )
        (length,) = self.b.extents([length], "items")
        return self.b.adopt(self.b.tensor(tensor).expr, [length, *tensor.shape[1:]])


def _growing(form: st.Form) -> list[bool]:
    """For each tensor that carries the form whether it is a stack."""
    match form:
        case st.Growing(_):
            return [True]
        case st.Group(items, _):
            return [flag for item in items for flag in _growing(item)]
        case st.Constant(_):
            return []
    return [False]

"""Branches and loops whose course only run time knows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np
from tvm import relax, tirx

from compiler.errors import ImportFailed
from compiler.ir.forks import RANKS
from compiler.ir.graph.builder import Builder
from compiler.ir.graph.indices import Indices
from compiler.ir.graph.values import Known, Tensor, Value
from compiler.ir.ops.pointwise import broadcast
from compiler.ir.ops.shape import layout
from compiler.ir.shapes import extents as ex
from compiler.ir.shapes.extents import Extent

Branch = Callable[[], Sequence[Value]]
Body = Callable[[Value, Sequence[Value]], tuple[Value, Sequence[Value]]]
"""Of the iteration number and the state: whether to go on (bool scalar), and the next state."""
Step = Callable[[Sequence[Value], Sequence[Value]], Sequence[Value]]
"""Of the state and an item of each sequence: the next state, then an item of each output."""
UNROLLED = 32
"""A loop of at most this many iterations, all certain, is unrolled at import."""


def decide(b: Builder, condition: Value) -> bool | None:
    """The truth of a condition of one element where the facts decide it."""
    if not isinstance(condition, Known):
        return None
    return b.facts.decide(condition.scalars()[0])


def demand(b: Builder, condition: Value, truth: bool, label: str) -> None:
    """Check at every run that the branch called `label` goes the way of this truth."""
    truth_of_run = b.known_integers(condition, "condition").scalars()[0]
    wanted = b.facts.simplify(truth_of_run if truth else ex.negate(truth_of_run))
    way = "then" if truth else "else"
    b.require(
        wanted,
        f"{label} must take its {way} branch, since the rest of the model does not fit the other: "
        f"{wanted}",
    )


def scalar_condition(b: Builder, condition: Value) -> Tensor:
    """A condition of one element as a bool tensor of rank 0."""
    return b.tensor(layout.reshape(b, b.tensor(condition), []))


def branch(b: Builder, condition: Value, then: Branch, otherwise: Branch) -> list[Value]:
    """The results of the branch that the condition takes; both must agree on dtypes and ranks.

    A decidable condition imports its branch alone. Extents in which the branches differ become
    fresh dims.
    """
    known = decide(b, condition)
    if known is not None:
        return list(then() if known else otherwise())
    test = scalar_condition(b, condition)
    yes, no = outline(b, "then", (), then), outline(b, "else", (), otherwise)
    shapes = [_joined(b, p, q) for p, q in zip(yes.results, no.results, strict=True)]
    result = b.bind(relax.If(test.expr, _sequence(b, yes.call), _sequence(b, no.call)))
    return [_field(b, result, index, shape) for index, shape in enumerate(shapes)]


@dataclass(frozen=True)
class Outlined:
    """A private function and what it reads from around it; `results` are its outputs as seen
    inside.
    """

    handle: Any
    captured: tuple[relax.Expr, ...]
    results: tuple[Tensor, ...]

    def call(self, *arguments: relax.Expr) -> relax.Expr:
        """The call with the function's own arguments first."""
        return relax.Call(self.handle, [*arguments, *self.captured])


def outline(b: Builder, name: str, own: Sequence[Tensor], make: Branch) -> Outlined:
    """A private function of `own` parameters around what `make` emits.

    Bodies of branches and loops are functions of their own since TVM's FuseOps loses track of
    dataflow blocks that stand inside a branch. Outer tensors travel as arguments, outer dims in one
    last shape argument.
    """
    with b.block() as inner:
        results = tuple(b.tensor(value) for value in make())
        last = b.bind(relax.Tuple([t.expr for t in results]))
    body = relax.SeqExpr([inner.block], last)
    mine = [t.expr for t in own]
    captured = [
        v
        for v in relax.analysis.free_vars(body)
        if isinstance(v.ty, relax.TensorType) and not any(v.same_as(m) for m in mine)
    ]
    dims = list(
        relax.analysis.free_symbolic_vars(relax.Function([*mine, *captured], body, relax.AnyType()))
    )
    shape = relax.Var("dims", relax.ShapeType(dims))
    function = relax.Function([*mine, *captured, shape], body, _erased(results), True)
    handle = b.bb.add_func(relax.utils.copy_with_new_vars(function), name)
    return Outlined(handle, (*captured, relax.ShapeExpr(dims)), results)


def _erased(tensors: Sequence[Tensor]) -> relax.TupleType:
    """The type of a tuple of tensors without extents, which the caller restates."""
    return relax.TupleType([relax.TensorType(dtype=t.dtype, ndim=len(t.shape)) for t in tensors])


def _sequence(b: Builder, emit: Callable[[], relax.Expr]) -> relax.SeqExpr:
    with b.block() as inner:
        result = b.bind(emit())
    return relax.SeqExpr([inner.block], result)


def _field(b: Builder, result: relax.Expr, index: int, shape: Sequence[Extent | None]) -> Tensor:
    extents = [b.facts.fresh("branch") if extent is None else extent for extent in shape]
    return b.adopt(b.bind(relax.TupleGetItem(result, index)), extents)


def _joined(b: Builder, p: Tensor, q: Tensor) -> list[Extent | None]:
    if p.dtype != q.dtype:
        raise ImportFailed(
            f"the branches of an If give {p.dtype} and {q.dtype}", reason="branch_dtype"
        )
    if len(p.shape) != len(q.shape):
        refuse_ranks(len(p.shape), len(q.shape))
    return [
        one if b.facts.same(one, two) is True else None
        for one, two in zip(p.shape, q.shape, strict=True)
    ]


def refuse_ranks(then: int, otherwise: int) -> NoReturn:
    """Raise ImportFailed for branches that give tensors of these ranks."""
    raise ImportFailed(
        f"the branches of an If give ranks {then} and {otherwise}",
        reason=RANKS,
        hint="fix the input that decides it with --const, or narrow the dims that do with --dim",
    )


def empty_stacks(b: Builder, make: Branch) -> list[Value]:
    """No items of each of the values that `make` gives, to stack them along a new first axis.

    `make` runs on trial; an extent that only holds inside it starts as 0 (see `push`).
    """
    before = set(b.facts.symbols)
    with b.block():
        items = [(value.dtype, value.shape) for value in make()]
    outer = [[e if _uses_only(e, before) else 0 for e in shape] for _, shape in items]
    return [
        broadcast.expand(
            b, Known(np.zeros([1] * (len(shape) + 1), np.dtype(dtype)), dtype), [0, *shape]
        )
        for (dtype, _), shape in zip(items, outer, strict=True)
    ]


def push(b: Builder, stack: Value, item: Value) -> Value:
    """The stack with one more item; an empty stack takes the item's extents, one that is not must
    have them.
    """
    restated = layout.reshape(b, stack, [stack.shape[0], *item.shape])
    return layout.concat(b, [restated, layout.unsqueeze(b, item, [0])], 0)


def _uses_only(extent: Extent, dims: set[Any]) -> bool:
    if isinstance(extent, int):
        return True
    return all(var in dims for var in tirx.analysis.undefined_vars(extent))


@dataclass(frozen=True)
class _Frame:
    """Types of a loop function's state: extents that every iteration keeps, None where
    they change.
    """

    dtypes: tuple[str, ...]
    shapes: tuple[tuple[Extent | None, ...], ...]


def loop(
    b: Builder, trips: Value | None, go: Value | None, state: Sequence[Value], body: Body
) -> list[Value]:
    """Run `body` while its condition holds and fewer than `trips` iterations are done; gives the
    last state.

    trips: int64 scalar, None for no limit; go: bool scalar, None for true. It becomes a function
    that calls itself.
    """
    initial = [b.tensor(value) for value in state]
    frame = _settle(b, initial, body)
    limit = b.tensor(Known.of(1 << 62) if trips is None else layout.reshape(b, trips, []))
    start = b.tensor(Known(np.asarray(True), "bool")) if go is None else scalar_condition(b, go)
    run = _function(b, frame, body)
    result = b.bind(
        run.call(b.tensor(Known.of(0)).expr, limit.expr, start.expr, *(t.expr for t in initial))
    )
    return [_field(b, result, index, shape) for index, shape in enumerate(frame.shapes)]


def _settle(b: Builder, initial: Sequence[Tensor], body: Body) -> _Frame:
    """The extents of the state that no iteration changes: the body is imported on trial until they
    stay.
    """
    shapes: list[tuple[Extent | None, ...]] = [t.shape for t in initial]
    while True:
        with b.block():
            before = [
                _parameter(b, t.dtype, shape) for t, shape in zip(initial, shapes, strict=True)
            ]
            _, after = body(_parameter(b, "int64", ()), before)
            stable = [
                _stable_extents(b, p, b.tensor(q), shape)
                for p, q, shape in zip(before, after, shapes, strict=True)
            ]
        if all(
            len([e for e in new if e is None]) == len([e for e in old if e is None])
            for new, old in zip(stable, shapes, strict=True)
        ):
            return _Frame(tuple(t.dtype for t in initial), tuple(stable))
        shapes = stable


def _stable_extents(
    b: Builder, before: Tensor, after: Tensor, shape: Sequence[Extent | None]
) -> tuple[Extent | None, ...]:
    if before.dtype != after.dtype or len(before.shape) != len(after.shape):
        raise ImportFailed(
            f"an iteration turns {before.dtype} of rank {len(before.shape)} into {after.dtype} of "
            f"rank {len(after.shape)}",
            reason="loop_state",
            hint="fix the trip count with --const, so that the loop is unrolled",
        )
    return tuple(
        e if e is not None and b.facts.same(p, q) is True else None
        for e, p, q in zip(shape, before.shape, after.shape, strict=True)
    )


def _parameter(
    b: Builder, dtype: str, shape: Sequence[Extent | None], name: str = "state"
) -> Tensor:
    extents = tuple(b.facts.fresh("loop") if extent is None else extent for extent in shape)
    return Tensor(
        relax.Var(name, relax.TensorType([ex.prim(e) for e in extents], dtype)), extents, dtype
    )


def _function(b: Builder, frame: _Frame, body: Body) -> Outlined:
    """The recursive function: of the iteration number, the limit, the condition and the state;
    gives the last state.
    """
    index, limit = _parameter(b, "int64", (), "i"), _parameter(b, "int64", (), "limit")
    go = _parameter(b, "bool", (), "go")
    state = [
        _parameter(b, dtype, shape) for dtype, shape in zip(frame.dtypes, frame.shapes, strict=True)
    ]

    def once() -> Sequence[Value]:
        more, after = body(index, state)
        return [scalar_condition(b, more), *after]

    step = outline(b, "body", [index, *state], once)
    outer = list(step.captured[:-1])
    dims = relax.Var("dims", relax.ShapeType(list(step.captured[-1].values)))
    own = [t.expr for t in (index, limit, go, *state)]
    parameters = [*own, *outer, dims]
    handle = b.bb.add_func(relax.Function.create_empty(parameters, _erased(state), True), "loop")

    def again() -> relax.Expr:
        results = b.bind(step.call(index.expr, *(t.expr for t in state)))
        after = [
            b.bind(relax.TupleGetItem(results, position)) for position in range(len(state) + 1)
        ]
        following = b.bind(relax.op.add(index.expr, relax.const(np.asarray(1, np.int64), "int64")))
        return relax.Call(handle, [following, limit.expr, *after, *outer, dims])

    with b.block() as block_of_body:
        proceed = b.emit(
            relax.op.logical_and(b.emit(relax.op.less(index.expr, limit.expr)).expr, go.expr)
        )
        stop = _sequence(b, lambda: relax.Tuple([t.expr for t in state]))
        chosen = b.bind(relax.If(proceed.expr, _sequence(b, again), stop))
    function = relax.Function(
        parameters, relax.SeqExpr([block_of_body.block], chosen), _erased(state), True
    )
    b.bb.update_func(handle, relax.utils.copy_with_new_vars(function))
    return Outlined(handle, step.captured, step.results)


def scan(b: Builder, state: Sequence[Value], sequences: Sequence[Value], step: Step) -> list[Value]:
    """Run `step` over the first axis of every sequence; gives the last state, then the outputs,
    whose items stack along a new first axis.
    """
    length = sequences[0].shape[0]
    for other in sequences[1:]:
        b.same(length, other.shape[0], "the sequences of a scan differ in length")
    if isinstance(length, int) and 0 < length <= UNROLLED:
        return _unrolled_scan(b, state, sequences, length, step)

    def first() -> Sequence[Value]:
        items = [nth(b, sequence, b.tensor(Known.of(0))) for sequence in sequences]
        return step(state, items)[len(state) :]

    stacks = empty_stacks(b, first)

    def body(iteration: Value, current: Sequence[Value]) -> tuple[Value, Sequence[Value]]:
        items = [nth(b, sequence, iteration) for sequence in sequences]
        results = step(current[: len(state)], items)
        grown = [
            push(b, stack, item)
            for stack, item in zip(current[len(state) :], results[len(state) :], strict=True)
        ]
        return Known(np.asarray(True), "bool"), [*results[: len(state)], *grown]

    outputs = loop(b, Known.of(length), None, [*state, *stacks], body)
    restated = [b.adopt(b.tensor(v).expr, [length, *v.shape[1:]]) for v in outputs[len(state) :]]
    return [*outputs[: len(state)], *restated]


def _unrolled_scan(
    b: Builder, state: Sequence[Value], sequences: Sequence[Value], length: int, step: Step
) -> list[Value]:
    count, columns = len(state), []
    for position in range(length):
        results = step(state, [nth(b, sequence, Known.of(position)) for sequence in sequences])
        state = results[:count]
        columns.append([layout.unsqueeze(b, item, [0]) for item in results[count:]])
    stacked = [layout.concat(b, list(column), 0) for column in zip(*columns, strict=True)]
    return [*state, *stacked]


def nth(b: Builder, sequence: Value, iteration: Value) -> Value:
    """The item of a loop's iteration: there are no more of these than items."""
    return layout.take(b, sequence, Indices.from_program(iteration, sequence.shape[0]), 0)

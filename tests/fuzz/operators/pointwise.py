"""Functions of elements, alone and by twos, with operands of other ranks."""

from typing import Any

from tests.fuzz.draft import Draft, Inapplicable, Value
from tests.fuzz.registry import operator

FUNCTIONS: dict[str, dict[str, Any]] = {
    "Relu": {}, "Tanh": {}, "Sigmoid": {}, "Erf": {}, "Abs": {}, "Neg": {}, "Softplus": {},
    "HardSwish": {}, "HardSigmoid": {"alpha": 0.2}, "LeakyRelu": {"alpha": 0.1},
    "Elu": {"alpha": 0.7}, "Selu": {}, "Mish": {}, "Sin": {}, "Cos": {}, "Softsign": {},
    "Identity": {}, "Atan": {}, "Celu": {"alpha": 0.9},
}  # fmt: skip


def activation(draft: Draft, x: Value) -> Value:
    kind = draft.choose(("Clip", "Relu", "Sigmoid", "HardSwish", "Tanh"))
    if kind == "Clip":
        low, high = draft.constant(0.0), draft.constant(6.0)
        return draft.apply("Clip", [x.name, low, high], x.shape)
    return draft.apply(kind, [x.name], x.shape)


@operator(3)
def function(draft: Draft) -> None:
    x, kind = draft.pick(), draft.choose(tuple(FUNCTIONS))
    draft.apply(kind, [x.name], x.shape, **FUNCTIONS[kind])


@operator(2)
def activate(draft: Draft) -> None:
    activation(draft, draft.pick())


@operator(0.7)
def bounded_power(draft: Draft) -> None:
    x = draft.pick()
    bounded = draft.node("Tanh", [x.name])[0]
    draft.apply("Exp", [bounded], x.shape)


@operator(0.7)
def root(draft: Draft) -> None:
    x = draft.pick()
    square = draft.node("Mul", [x.name, x.name])[0]
    more = draft.node("Add", [square, draft.constant(0.5)])[0]
    draft.apply(draft.choose(("Sqrt", "Log", "Reciprocal")), [more], x.shape)


@operator(1)
def rectifier(draft: Draft) -> None:
    """PRelu, with a slope for each channel."""
    x = draft.pick(3, 4)
    draft.apply("PRelu", [x.name, draft.weight(x.fix_extents(1), *[1] * (x.rank - 2))], x.shape)


@operator(3)
def with_constant(draft: Draft) -> None:
    """A constant that broadcasts: of lower rank, of the same, or of a higher one."""
    x = draft.pick()
    rank = int(draft.random.integers(0, min(x.rank + 2, 5)))
    shape: list[int] = []
    for back in range(rank, 0, -1):
        extent = x.shape[-back] if back <= x.rank else 1
        retained = isinstance(extent, int) and draft.chance(0.7)
        shape.append(extent if retained and isinstance(extent, int) else 1)
    result = (*[1] * (rank - x.rank), *x.shape)
    other = draft.weight(*shape)
    op = draft.choose(("Add", "Mul", "Sub", "Max", "Min"))
    draft.apply(op, [x.name, other] if draft.chance(0.7) else [other, x.name], result)


def _alike(x: Value, y: Value) -> tuple[Any, ...] | None:
    """The shape of both, broadcast; None where they do not fit."""
    rank = max(x.rank, y.rank)
    shape = []
    for left, right in zip(
        (1,) * (rank - x.rank) + x.shape, (1,) * (rank - y.rank) + y.shape, strict=True
    ):
        if left != right and 1 not in (left, right):
            return None
        shape.append(right if left == 1 else left)
    return tuple(shape)


@operator(4)
def both(draft: Draft) -> None:
    """Two values that broadcast, of any ranks."""
    x = draft.pick()
    results = [(y, shape) for y in draft.values if y is not x and (shape := _alike(x, y))]
    if not results:
        raise Inapplicable
    y, shape = draft.choose(results)
    op = draft.choose(("Add", "Add", "Mul", "Sub", "Max", "Min"))
    draft.apply(op, [x.name, y.name] if draft.chance(0.5) else [y.name, x.name], shape)


@operator(0.5)
def quotient(draft: Draft) -> None:
    x = draft.pick()
    below = draft.node("Abs", [draft.node("Tanh", [x.name])[0]])[0]
    draft.apply("Div", [x.name, draft.node("Add", [below, draft.constant(1.0)])[0]], x.shape)


@operator(0.7)
def choose(draft: Draft) -> None:
    """Where, both of whose sides meet at the threshold."""
    x = draft.pick()
    positive = draft.node("Greater", [x.name, draft.constant(0.0)])[0]
    small = draft.node("Mul", [x.name, draft.constant(0.25)])[0]
    draft.apply("Where", [positive, x.name, small], x.shape)

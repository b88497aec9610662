"""Gathers and scatters by element and by slice, selections, and sizes that data decide."""

from typing import Any

from tests.fuzz.draft import Draft, Inapplicable, Value, least
from tests.fuzz.registry import operator

REDUCTIONS = ("none", "add", "mul", "max", "min")


def _start(draft: Draft, x: Value, axis: int, size: int) -> str:
    """The first `size` elements of an axis."""
    ends = [draft.constant([number], "int64") for number in (0, size, axis, 1)]
    return draft.node("Slice", [x.name, *ends])[0]


def _positions(draft: Draft, x: Value, axis: int, low: int) -> str:
    """Computed indices of an axis, as many as `x` has elements: -low or more, less than low."""
    scaled = draft.node("Mul", [x.name, draft.constant(low / 2)])[0]
    ends = [draft.constant(float(end)) for end in (-low, low - 1)]
    clipped = draft.node("Clip", [draft.node("Floor", [scaled])[0], *ends])[0]
    return draft.node("Cast", [clipped], to=7)[0]


@operator(1)
def gather_elements(draft: Draft) -> None:
    x = draft.give_input(2, 3, 4)
    axis = draft.axis(x)
    low = min(least(x.shape[axis]), 20)
    if low < 1:
        raise Inapplicable
    draft.apply("GatherElements", [x.name, _positions(draft, x, axis, low)], x.shape, axis=axis)


@operator(0.7)
def gather_computed(draft: Draft) -> None:
    """Rows of a table, by numbers that a graph computes, as embeddings are."""
    x, rows, width = draft.give_input(1, 2, 3), draft.choose((1, 7, 16)), draft.channels()
    table = draft.weight(rows, width)
    draft.apply("Gather", [table, _positions(draft, x, 0, rows)], (*x.shape, width), axis=0)


@operator(2)
def scatter_elements(draft: Draft) -> None:
    """Scatter other elements onto the first ones; equal targets only where the order
    does not matter.
    """
    x = draft.pick(1, 2, 3, 4)
    axis = draft.axis(x)
    low = min(least(x.shape[axis]), 7)
    if low < 1:
        raise Inapplicable
    reduction = draft.choose(REDUCTIONS)
    size = low if reduction == "none" else draft.choose((1, low, low + 2))
    size = min(size, low)
    order = draft.random.permutation(low)[:size]
    if reduction != "none" and draft.chance(0.6):
        order = draft.random.integers(-low, low, size)
    updates = _start(draft, x, axis, size)
    updates = draft.node("Tanh", [updates])[0]
    ones = [1] * x.rank
    ones[axis] = size
    row = draft.constant(order.reshape(ones), "int64")
    indices = draft.node("Expand", [row, draft.node("Shape", [updates])[0]])[0]
    attributes: dict[str, Any] = {"axis": axis - x.rank if draft.chance(0.3) else axis}
    draft.apply(
        "ScatterElements", [x.name, indices, updates], x.shape, reduction=reduction, **attributes
    )


@operator(1.5)
def scatter_slices(draft: Draft) -> None:
    """ScatterND of whole slices of the first axis."""
    x = draft.pick(2, 3, 4)
    low = min(least(x.shape[0]), 5)
    if low < 1:
        raise Inapplicable
    reduction = draft.choose(REDUCTIONS)
    order = draft.random.permutation(low)
    if reduction != "none" and draft.chance(0.6):
        order = draft.random.integers(-low, low, low)
    updates = _start(draft, x, 0, low)
    updates = draft.node("Sin", [updates])[0]
    indices = draft.constant(order[:, None], "int64")
    draft.apply("ScatterND", [x.name, indices, updates], x.shape, reduction=reduction)


@operator(1)
def gather_slices(draft: Draft) -> None:
    """GatherND, behind a batch axis or not."""
    x = draft.pick(2, 3, 4)
    low = min(least(x.shape[0]), 6)
    if low < 1:
        raise Inapplicable
    indices = draft.constant(draft.random.integers(-low, low, (4, 1)), "int64")
    draft.apply("GatherND", [x.name, indices], (4, *x.shape[1:]))


@operator(1)
def top(draft: Draft) -> None:
    """The greatest or least elements of an axis, and where they are."""
    x = draft.give_input(2, 3, 4)
    axis = draft.axis(x)
    low = min(least(x.shape[axis]), 17)
    if low < 1:
        raise Inapplicable
    count = int(draft.random.integers(1, low + 1))
    names = draft.node(
        "TopK", [x.name, draft.constant([count], "int64")], count=2, axis=axis,
        largest=int(draft.chance(0.5)), sorted=1,
    )  # fmt: skip
    shape = (*x.shape[:axis], count, *x.shape[axis + 1 :])
    draft.keep(names[0], shape)
    draft.apply("Cast", [names[1]], shape, to=1)


@operator(0.7)
def whereabouts(draft: Draft) -> None:
    x = draft.give_input(2, 3, 4)
    axis = draft.axis(x)
    x.fill_inputs(axis)
    op = draft.choose(("ArgMax", "ArgMin"))
    result = draft.node(op, [x.name], axis=axis, select_last_index=int(draft.chance(0.5)))[0]
    draft.apply("Cast", [result], (*x.shape[:axis], 1, *x.shape[axis + 1 :]), to=1)


@operator(1)
def chosen_rows(draft: Draft) -> None:
    """Take as many rows as the numbers decide, taken together again by a sum or a greatest one."""
    x = draft.give_input(2, 3)
    x.fill_inputs(*range(x.rank))
    kind = draft.choose(("NonZero", "Compress", "Unique"))
    bound = draft.constant(draft.choose((-9.0, 0.0, 1.0)))
    if kind == "Unique":
        full = draft.node("Floor", [x.name])[0]
        rows = draft.node("Unique", [full])[0]
        draft.apply("ReduceSum", [rows, draft.constant([0], "int64")], (1,))
        return
    over = draft.node("Greater", [x.name, bound])[0]
    if kind == "Compress":
        rows = draft.node("Compress", [x.name, draft.node("Reshape", [
            over, draft.constant([-1], "int64")])[0]])[0]  # fmt: skip
    else:
        positions = draft.node("Transpose", [draft.node("NonZero", [over])[0]], perm=[1, 0])[0]
        rows = draft.node("GatherND", [x.name, positions])[0]
    bent = draft.node(draft.choose(("Tanh", "Sigmoid", "Neg")), [rows])[0]
    draft.apply("ReduceSum", [bent, draft.constant([0], "int64")], (1,))


@operator(0.7)
def one_hot(draft: Draft) -> None:
    x, depth = draft.give_input(1, 2), draft.choose((1, 3, 16))
    inputs = [_positions(draft, x, 0, depth), draft.constant(depth, "int64")]
    values = draft.constant(draft.random.standard_normal(2))
    draft.apply("OneHot", [*inputs, values], (*x.shape, depth))


@operator(0.7)
def triangle(draft: Draft) -> None:
    x = draft.pick(2, 3, 4)
    offset = draft.constant(int(draft.random.integers(-3, 4)), "int64")
    draft.apply("Trilu", [x.name, offset], x.shape, upper=int(draft.chance(0.5)))


@operator(0.5)
def reversed_rows(draft: Draft) -> None:
    """ReverseSequence over a fixed number of sequences."""
    x = draft.pick(2, 3, 4)
    low = least(x.shape[1])
    batch = x.fix_extents(0)
    if low < 1:
        raise Inapplicable
    lengths = draft.constant(draft.random.integers(1, low + 1, batch), "int64")
    draft.apply("ReverseSequence", [x.name, lengths], x.shape, batch_axis=0, time_axis=1)

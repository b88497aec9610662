"""Operators whose extents, bounds and counts are integers that only run time knows, of any sign."""

from collections.abc import Sequence

from tests.fuzz.draft import Draft, Extent, Inapplicable, each, least, most
from tests.fuzz.registry import operator

FAR = 2**62


def _hide(draft: Draft, numbers: Sequence[int] | int) -> str:
    """Numbers that an import cannot know: a constant plus a zero that a graph computes."""
    x = draft.give_input()
    size = draft.node("Size", [x.name])[0]
    total = draft.node("ReduceSum", [draft.node("Abs", [x.name])[0]], keepdims=0)[0]
    huge = draft.node("Greater", [total, draft.constant(1e30)])[0]
    zero = draft.node("Mul", [draft.node("Cast", [huge], to=7)[0], size])[0]
    return draft.node("Add", [draft.constant(numbers, "int64"), zero])[0]


@operator(1)
def run_time_slice(draft: Draft) -> None:
    """Bounds inside and outside of the axis, and a step of either sign."""
    x = draft.pick(1, 2, 3, 4)
    axis = draft.axis(x)
    extent = x.shape[axis]
    bounds = (-FAR, -7, -2, -1, 0, 1, 3, 8, FAR)
    start, stop, step = draft.choose(bounds), draft.choose(bounds), draft.choose((1, 2, 3, -1, -2))
    if step < 0 and start < 0:
        # Where that lies before an axis, the specification and numpy differ.
        start = draft.choose((8, FAR))
    result = each(lambda size: len(range(size)[slice(start, stop, step)]), extent)
    if least(result) < 1:
        raise Inapplicable
    hidden = _hide(draft, [step]) if draft.chance(0.5) else draft.constant([step], "int64")
    inputs = [_hide(draft, [start]), _hide(draft, [stop]), draft.constant([axis], "int64"), hidden]
    draft.apply("Slice", [x.name, *inputs], (*x.shape[:axis], result, *x.shape[axis + 1 :]))


@operator(1)
def run_time_pad(draft: Draft) -> None:
    """Amounts that pad, and some that crop."""
    x = draft.pick(2, 3, 4)
    axis = draft.axis(x)
    low = least(x.shape[axis])
    first, last = (int(draft.random.integers(-3, 4)) for _ in range(2))
    if low + min(first, 0) + min(last, 0) < 1:
        raise Inapplicable
    amounts = [0] * (2 * x.rank)
    amounts[axis], amounts[axis + x.rank] = first, last
    extent = each(lambda size: size + first + last, x.shape[axis])
    mode = draft.choose(("constant", "edge"))
    shape = (*x.shape[:axis], extent, *x.shape[axis + 1 :])
    draft.apply("Pad", [x.name, _hide(draft, amounts)], shape, mode=mode)


@operator(1)
def run_time_split(draft: Draft) -> None:
    x = draft.pick(2, 3, 4)
    axis = draft.axis(x)
    size = x.fix_extents(axis)
    cut = int(draft.random.integers(0, size + 1))
    names = draft.node("Split", [x.name, _hide(draft, [cut, size - cut])], count=2, axis=axis)
    for name, part in zip(names, (cut, size - cut), strict=True):
        if part:
            draft.keep(name, (*x.shape[:axis], part, *x.shape[axis + 1 :]))


@operator(1)
def run_time_range(draft: Draft) -> None:
    """Numbers up or down as a column, beside a row that they are added to."""
    x = draft.pick(2)
    x.fill_inputs(0)
    start, limit = (int(draft.random.integers(-9, 10)) for _ in range(2))
    delta = int(draft.choose((-3, -1, 1, 2)))
    numbers = [
        _hide(draft, number) if draft.chance(0.7) else draft.constant(number, "int64")
        for number in (start, limit, delta)
    ]
    count = len(range(start, limit, delta))
    if not count:
        raise Inapplicable
    steps = draft.node("Cast", [draft.node("Range", numbers)[0]], to=1)[0]
    column = draft.node("Sin", [steps])[0]
    tall = draft.node("Unsqueeze", [column, draft.constant([1], "int64")])[0]
    row = draft.node("ReduceMean", [x.name, draft.constant([0], "int64")])[0]
    draft.apply("Add", [tall, row], (count, x.shape[1]))


@operator(0.7)
def run_time_tile(draft: Draft) -> None:
    x = draft.pick(2, 3, 4)
    times = [draft.choose((1, 1, 1, 2, 3)) for _ in x.shape]
    shape = [
        each(lambda size, count=count: size * count, extent)
        for extent, count in zip(x.shape, times, strict=True)
    ]
    draft.apply("Tile", [x.name, _hide(draft, times)], shape)


@operator(0.7)
def run_time_expand(draft: Draft) -> None:
    """A new first axis, and 1 for the others."""
    x = draft.pick(1, 2, 3)
    x.fill_inputs(*range(x.rank))
    count = int(draft.choose((1, 2, 3)))
    draft.apply("Expand", [x.name, _hide(draft, [count, *[1] * x.rank])], (count, *x.shape))


@operator(0.7)
def run_time_reshape(draft: Draft) -> None:
    """Extents that are kept, a new one, and what remains."""
    x = draft.pick(2, 3, 4)
    x.fill_inputs(*range(x.rank))
    size = x.fix_extents(-1)
    part = draft.choose([part for part in range(1, size + 1) if size % part == 0])
    wanted = [*[0] * (x.rank - 1), part, -1]
    draft.apply("Reshape", [x.name, _hide(draft, wanted)], (*x.shape[:-1], part, size // part))


@operator(0.5)
def run_time_zeros(draft: Draft) -> None:
    """ConstantOfShape, as the first part of an axis."""
    x = draft.pick(2, 3)
    if isinstance(x.shape[0], tuple):
        raise Inapplicable
    x.fill_inputs(*range(x.rank))
    count = int(draft.choose((0, 1, 5)))
    extents = draft.node("Shape", [x.name], start=1)[0]
    shape = draft.node("Concat", [_hide(draft, [count]), extents], axis=0)[0]
    zeros = draft.node("ConstantOfShape", [shape])[0]
    draft.apply("Concat", [zeros, x.name], (count + x.shape[0], *x.shape[1:]), axis=0)


@operator(0.7)
def run_time_resize(draft: Draft) -> None:
    """To sizes that only run time knows, or by such scales."""
    x = draft.pick(4)
    x.fill_inputs(*range(4))
    if any(isinstance(extent, tuple) for extent in x.shape[:2]) or most(x.shape[2]) > 70:
        raise Inapplicable
    sizes = [int(draft.choose((1, 4, 15, 17))) for _ in range(2)]
    mode = {"mode": draft.choose(("nearest", "linear"))}
    shape: Sequence[Extent] = (*x.shape[:2], *sizes)
    draft.apply("Resize", [x.name, "", "", _hide(draft, shape)], shape, **mode)  # type: ignore[arg-type]

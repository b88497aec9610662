"""Operators that move elements: concatenations, splits, pads, slices, gathers, resizes."""

from collections.abc import Sequence

from tests.fuzz.draft import Draft, Extent, Inapplicable, Value, each, least, most
from tests.fuzz.registry import operator


@operator(3)
def concat(draft: Draft) -> None:
    """With values that differ in one axis at most, or with a function of itself."""
    x = draft.pick(2, 3, 4)
    axis = 1 if draft.chance(0.6) else draft.axis(x)

    def rest(value: Value) -> Sequence[Extent]:
        return [extent for index, extent in enumerate(value.shape) if index != axis]

    others = [y for y in draft.values if y.rank == x.rank and rest(y) == rest(x)]
    parts = [x, draft.choose(others)]
    if draft.chance(0.3):
        parts.append(draft.choose(others))
    if parts[1] is x:
        parts[1] = draft.apply("Tanh", [x.name], x.shape)
    if draft.chance(0.5):
        parts.reverse()
    extent = each(lambda *sizes: sum(sizes), *(part.shape[axis] for part in parts))
    shape = (*x.shape[:axis], extent, *x.shape[axis + 1 :])
    draft.apply("Concat", [part.name for part in parts], shape, axis=axis)


@operator(1.5)
def split(draft: Draft) -> None:
    x = draft.pick(2, 3, 4)
    axis = 1 if draft.chance(0.6) else draft.axis(x)
    size = x.fix_extents(axis)
    if size < 2:
        raise Inapplicable
    cuts = sorted({int(draft.random.integers(1, size)) for _ in range(draft.choose((1, 1, 2)))})
    sizes = [end - start for start, end in zip([0, *cuts], [*cuts, size], strict=True)]
    names = draft.node(
        "Split", [x.name, draft.constant(sizes, "int64")], count=len(sizes), axis=axis
    )
    for name, part in zip(names, sizes, strict=True):
        draft.keep(name, (*x.shape[:axis], part, *x.shape[axis + 1 :]))


@operator(1.5)
def pad(draft: Draft) -> None:
    x = draft.pick(2, 3, 4)
    mode = draft.choose(("constant", "constant", "reflect", "edge"))
    starts, ends = [0] * x.rank, [0] * x.rank
    for axis in range(x.rank)[-2:]:
        starts[axis], ends[axis] = draft.choose(((0, 1), (1, 0), (1, 1), (0, 2), (2, 3)))
        needed = {"constant": 0, "edge": 1, "reflect": max(starts[axis], ends[axis]) + 1}[mode]
        if least(x.shape[axis]) < needed:
            raise Inapplicable
    inputs = [x.name, draft.constant([*starts, *ends], "int64")]
    if mode == "constant" and draft.chance(0.3):
        inputs.append(draft.constant(0.5))
    shape = [
        each(lambda size, more=start + end: size + more, extent)
        for extent, start, end in zip(x.shape, starts, ends, strict=True)
    ]
    draft.apply("Pad", inputs, shape, mode=mode)


@operator(2)
def slice_axis(draft: Draft) -> None:
    x = draft.pick(1, 2, 3, 4)
    axis = draft.axis(x)
    extent = x.shape[axis]
    if least(extent) < 1:
        raise Inapplicable
    low = min(least(extent), 9)
    start = int(draft.random.integers(-low, low))
    stop = draft.choose((2**31 - 1, 2**31 - 1, -1, low))
    step = draft.choose((1, 1, 2, 3))
    if draft.chance(0.15):
        start, stop, step = -1, -(2**31), -1
    result = each(lambda size: len(range(size)[slice(start, stop, step)]), extent)
    if least(result) < 1:
        raise Inapplicable
    inputs = [x.name, *(draft.constant([one], "int64") for one in (start, stop, axis, step))]
    draft.apply("Slice", inputs, (*x.shape[:axis], result, *x.shape[axis + 1 :]))


@operator(1)
def gather(draft: Draft) -> None:
    x = draft.pick(1, 2, 3, 4)
    axis = draft.axis(x)
    low = min(least(x.shape[axis]), 20)
    if low < 1:
        raise Inapplicable
    shape = draft.choose(((1,), (5,), (17,), (2, 3)))
    indices = draft.constant(draft.random.integers(-low, low, shape), "int64")
    result = (*x.shape[:axis], *shape, *x.shape[axis + 1 :])
    draft.apply("Gather", [x.name, indices], result, axis=axis)


@operator(2)
def transpose(draft: Draft) -> None:
    x = draft.pick(2, 3, 4, 5)
    order = [int(axis) for axis in draft.random.permutation(x.rank)]
    draft.apply("Transpose", [x.name], [x.shape[axis] for axis in order], perm=order)


@operator(1)
def join_axes(draft: Draft) -> None:
    """The axes from one on become a single one."""
    x = draft.pick(3, 4, 5)
    x.fill_inputs(*range(x.rank))
    first = int(draft.random.integers(1, x.rank - 1))
    joined = each(lambda *sizes: _count_elements(sizes), *x.shape[first:])
    shape = draft.constant([*[0] * first, -1], "int64")
    draft.apply("Reshape", [x.name, shape], (*x.shape[:first], joined))


def _count_elements(sizes: Sequence[int]) -> int:
    total = 1
    for size in sizes:
        total *= size
    return total


@operator(0.7)
def split_axis(draft: Draft) -> None:
    """The last axis becomes two."""
    x = draft.pick(2, 3, 4)
    size = x.fix_extents(-1)
    x.fill_inputs(*range(x.rank))
    parts = [part for part in range(2, size + 1) if size % part == 0]
    if not parts:
        raise Inapplicable
    part = draft.choose(parts)
    shape = draft.constant([*[0] * (x.rank - 1), part, size // part], "int64")
    draft.apply("Reshape", [x.name, shape], (*x.shape[:-1], part, size // part))


@operator(0.7)
def add_axis(draft: Draft) -> None:
    x = draft.pick(1, 2, 3)
    axis = int(draft.random.integers(x.rank + 1))
    shape = (*x.shape[:axis], 1, *x.shape[axis:])
    draft.apply("Unsqueeze", [x.name, draft.constant([axis], "int64")], shape)


@operator(0.7)
def drop_axis(draft: Draft) -> None:
    x = draft.pick(2, 3, 4, 5)
    ones = [axis for axis, extent in enumerate(x.shape) if extent == 1]
    if not ones:
        raise Inapplicable
    axis = draft.choose(ones)
    shape = (*x.shape[:axis], *x.shape[axis + 1 :])
    draft.apply("Squeeze", [x.name, draft.constant([axis], "int64")], shape)


@operator(0.5)
def tile(draft: Draft) -> None:
    x = draft.pick(2, 3, 4)
    times = [draft.choose((1, 1, 2, 3)) for _ in x.shape]
    shape = [
        each(lambda size, count=count: size * count, extent)
        for extent, count in zip(x.shape, times, strict=True)
    ]
    draft.apply("Tile", [x.name, draft.constant(times, "int64")], shape)


@operator(0.5)
def depth_to_space(draft: Draft) -> None:
    x = draft.pick(4)
    channels = x.fix_extents(1)
    if channels % 4:
        raise Inapplicable
    space = [each(lambda size: 2 * size, extent) for extent in x.shape[2:]]
    mode = draft.choose(("DCR", "CRD"))
    shape = (x.shape[0], channels // 4, *space)
    draft.apply("DepthToSpace", [x.name], shape, blocksize=2, mode=mode)


RESIZES = (
    {"mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"},
    {"mode": "linear", "coordinate_transformation_mode": "half_pixel"},
    {"mode": "linear", "coordinate_transformation_mode": "asymmetric"},
    {"mode": "linear", "coordinate_transformation_mode": "align_corners"},
    {"mode": "linear", "coordinate_transformation_mode": "pytorch_half_pixel"},
    {"mode": "cubic", "coordinate_transformation_mode": "half_pixel"},
)


@operator(1)
def resize(draft: Draft) -> None:
    x = draft.pick(4)
    x.fill_inputs(0, 2, 3)
    scale = draft.choose((2.0, 2.0, 3.0))
    if most(x.shape[2]) > 70:
        raise Inapplicable
    space = [each(lambda size: int(size * scale), extent) for extent in x.shape[2:]]
    scales = draft.constant([1.0, 1.0, scale, scale])
    draft.apply("Resize", [x.name, "", scales], (*x.shape[:2], *space), **draft.choose(RESIZES))


@operator(0.7)
def to_size(draft: Draft) -> None:
    """Resized to a fixed size."""
    x = draft.pick(4)
    x.fill_inputs(*range(4))
    channels, size = x.fix_extents(1), draft.choose((4, 15, 16, 17))
    shape = draft.node("Shape", [x.name], start=0, end=1)[0]
    rest = draft.constant([channels, size, size], "int64")
    sizes = draft.node("Concat", [shape, rest], axis=0)[0]
    kind = draft.choose(RESIZES[1:5])
    draft.apply("Resize", [x.name, "", "", sizes], (x.shape[0], channels, size, size), **kind)


@operator(0.5)
def nothing(draft: Draft) -> None:
    """A slice without elements, whatever the dims are."""
    x = draft.pick(2, 3, 4)
    axis = draft.axis(x)
    start, along = draft.constant([0], "int64"), draft.constant([axis], "int64")
    draft.apply("Slice", [x.name, start, start, along], (*x.shape[:axis], 0, *x.shape[axis + 1 :]))

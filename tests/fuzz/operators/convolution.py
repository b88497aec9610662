"""Convolutions: dense, depthwise, in groups, transposed, of one dimension."""

from typing import Any

from tests.fuzz.draft import CHANNELS, Draft, Extent, Inapplicable, Value, each, least
from tests.fuzz.registry import operator

KERNELS = ((1, 1), (1, 1), (3, 3), (3, 3), (2, 2), (1, 3), (3, 1), (5, 5), (4, 2))


def padding(draft: Draft, kernel: tuple[int, ...]) -> dict[str, Any]:
    """Attributes: none, half a window, one-sided, uneven, or automatic."""
    rank = len(kernel)
    kinds: dict[str, dict[str, Any]] = {
        "none": {},
        "half": {"pads": [size // 2 for size in kernel] * 2},
        "after": {"pads": [0] * rank + [size - 1 for size in kernel]},
        "before": {"pads": [size - 1 for size in kernel] + [0] * rank},
        "uneven": {"pads": [int(draft.random.integers(size)) for size in kernel * 2]},
        "upper": {"auto_pad": "SAME_UPPER"},
        "lower": {"auto_pad": "SAME_LOWER"},
        "valid": {"auto_pad": "VALID"},
    }
    return kinds[draft.choose([*kinds, "half", "half"])]


def windows(
    extent: Extent, position: int, kernel: int, stride: int, dilation: int, rank: int, padded: Any
) -> Extent:
    """How many windows an axis has; raises Inapplicable where there may be none."""
    if padded.get("auto_pad", "VALID") != "VALID":
        return each(lambda size: -(-size // stride), extent)
    pads = padded.get("pads", [0] * 2 * rank)
    around = pads[position] + pads[position + rank]
    count = each(lambda size: (size + around - dilation * (kernel - 1) - 1) // stride + 1, extent)
    if least(count) < 1 or least(extent) < 1:
        raise Inapplicable
    return count


def convolve(draft: Draft, x: Value, out: int, group: int, kernel: tuple[int, ...]) -> Value:
    channels, rank = x.fix_extents(1), len(kernel)
    strides = [draft.choose((1, 1, 2)) for _ in kernel]
    if draft.chance(0.7):
        strides = strides[:1] * rank
    dilations = [2 if draft.chance(0.1) and size > 1 else 1 for size in kernel]
    padded = padding(draft, kernel)
    if padded.get("auto_pad", "VALID") != "VALID":
        # Where a stride leaves out points, engines disagree on dilated automatic padding.
        dilations = [1] * rank
    space = [
        windows(
            x.shape[2 + index], index, kernel[index], strides[index], dilations[index], rank, padded
        )
        for index in range(rank)
    ]
    fan = channels // group
    for size in kernel:
        fan *= size
    inputs = [x.name, draft.weight(out, channels // group, *kernel, fan=fan)]
    if draft.chance(0.6):
        inputs.append(draft.weight(out))
    attributes: dict[str, Any] = {"kernel_shape": kernel, "strides": strides, **padded}
    if max(dilations) > 1:
        attributes["dilations"] = dilations
    return draft.apply("Conv", inputs, (x.shape[0], out, *space), group=group, **attributes)


@operator(9)
def conv(draft: Draft) -> None:
    x = draft.pick(4)
    convolve(draft, x, draft.channels(), 1, draft.choose(KERNELS))


@operator(3)
def depthwise(draft: Draft) -> None:
    x = draft.pick(4)
    channels = x.fix_extents(1)
    times = 2 if channels < 40 and draft.chance(0.15) else 1
    convolve(draft, x, channels * times, channels, draft.choose(KERNELS[2:]))


@operator(1)
def group_conv(draft: Draft) -> None:
    x = draft.pick(4)
    channels = x.fix_extents(1)
    groups = [group for group in range(2, channels) if channels % group == 0]
    if not groups:
        raise Inapplicable
    group = draft.choose(groups)
    out = group * draft.choose([size for size in CHANNELS if size * group <= 96] or [1])
    convolve(draft, x, out, group, draft.choose(KERNELS))


@operator(1)
def conv_of_rows(draft: Draft) -> None:
    x = draft.pick(3)
    channels, kernel = x.fix_extents(1), (draft.choose((1, 2, 3, 5, 9)),)
    if draft.chance(0.3):
        convolve(draft, x, channels, channels, kernel)
    else:
        convolve(draft, x, draft.channels(), 1, kernel)


@operator(1.5)
def conv_transpose(draft: Draft) -> None:
    x = draft.pick(4)
    channels, size, stride = (
        x.fix_extents(1),
        draft.choose((1, 2, 3, 4)),
        draft.choose((1, 2, 2, 3)),
    )
    group = channels if draft.chance(0.2) else 1
    out = 1 if group > 1 else draft.channels()
    before, after = (int(draft.random.integers(min(size, 2))) for _ in range(2))
    extra = int(draft.random.integers(stride)) if draft.chance(0.3) else 0
    x.fill_inputs(2, 3)
    space = [
        each(lambda n: (n - 1) * stride + size - before - after + extra, extent)
        for extent in x.shape[2:]
    ]
    if min(map(least, space)) < 1:
        raise Inapplicable
    inputs = [
        x.name, draft.weight(channels, out, size, size, fan=max(channels // group * size, 1))
    ]  # fmt: skip
    if draft.chance(0.5):
        inputs.append(draft.weight(out * group))
    draft.apply(
        "ConvTranspose",
        inputs,
        (x.shape[0], out * group, *space),
        group=group,
        kernel_shape=[size, size],
        strides=[stride, stride],
        pads=[before, before, after, after],
        output_padding=[extra, extra],
    )


STREAMS = (
    ("cache", "x"), ("x", "cache"), ("constant", "x"), ("x", "constant"), ("cache", "x", "cache"),
    ("constant", "cache", "x"), ("constant", "x", "cache"), ("x", "x", "cache"), ("none", "x"),
)  # fmt: skip
"""The parts of a concatenation in front of a convolution: as streams have a cache of what came
before, or zeros.
"""


def _part(draft: Draft, kind: str, x: Value) -> tuple[str, Extent]:
    """The name of a part, and its extent along the last axis."""
    if kind == "x":
        return x.name, x.shape[-1]
    width = 0 if kind == "none" else int(draft.choose((1, 2, 3, 8)))
    if kind == "cache":
        name = draft.fresh("cache")
        draft.inputs[name] = (*draft.inputs[x.name][:-1], width)
        return name, width
    shape = [extent for extent in x.shape[:-1] if isinstance(extent, int)]
    if len(shape) < x.rank - 1:
        raise Inapplicable
    return draft.weight(*shape, width), width


def _finish(draft: Draft, y: Value) -> None:
    """An epilogue behind a convolution."""
    channels, ones = y.fix_extents(1), [1] * (y.rank - 2)
    kind = draft.choose(("none", "Relu", "Clip", "norm", "bias", "gate", "HardSwish", "residual"))
    if kind in ("Relu", "HardSwish"):
        draft.apply(kind, [y.name], y.shape)
    elif kind == "Clip":
        draft.apply("Clip", [y.name, draft.constant(0), draft.constant(6)], y.shape)
    elif kind == "norm":
        scale, shift, mean = (draft.weight(channels) for _ in range(3))
        variance = draft.constant(draft.random.uniform(0.5, 2, channels))
        inputs = [y.name, scale, shift, mean, variance]
        draft.apply("BatchNormalization", inputs, y.shape)
    elif kind == "bias":
        draft.apply("Add", [y.name, draft.weight(1, channels, *ones)], y.shape)
    elif kind == "gate":
        draft.apply("Mul", [y.name, draft.node("Sigmoid", [y.name])[0]], y.shape)
    elif kind == "residual":
        draft.apply("Add", [y.name, draft.node("Tanh", [y.name])[0]], y.shape)


@operator(3)
def streaming(draft: Draft) -> None:
    """A convolution over a stream behind its cache, and the next cache."""
    x = draft.give_input(3, 4)
    channels = x.fix_extents(1)
    names, extents = zip(*(_part(draft, kind, x) for kind in draft.choose(STREAMS)), strict=True)
    shape = (*x.shape[:-1], each(lambda *sizes: sum(sizes), *extents))
    joined = draft.apply("Concat", names, shape, axis=x.rank - 1)
    kernel = draft.choose(((1,), (3,), (5,)) if x.rank == 3 else KERNELS)
    depthwise = draft.chance(0.4)
    out = channels if depthwise else draft.channels()
    _finish(draft, convolve(draft, joined, out, channels if depthwise else 1, kernel))
    if draft.chance(0.5) and least(shape[-1]) >= 2:
        start, end, axis = (draft.constant([value], "int64") for value in (-2, 1 << 40, x.rank - 1))
        draft.apply("Slice", [joined.name, start, end, axis], (*shape[:-1], 2))

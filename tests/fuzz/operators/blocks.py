"""Blocks of real networks, which passes look for as a whole."""

from tests.fuzz.draft import Draft, least
from tests.fuzz.operators.convolution import convolve
from tests.fuzz.operators.pointwise import activation
from tests.fuzz.operators.rows import project
from tests.fuzz.registry import operator


@operator(1.5)
def mobile(draft: Draft) -> None:
    """A 1x1 convolution, padded on the right and below, a depthwise one of stride 2, 1x1."""
    x, wide = draft.pick(4), draft.channels()
    y = activation(draft, convolve(draft, x, wide, 1, (1, 1)))
    pads = draft.constant([0, 0, 0, 0, 0, 0, 1, 1], "int64")
    if draft.chance(0.5) and min(map(least, y.shape[2:])) > 1:
        name = draft.node("Pad", [y.name, pads])[0]
        y = draft.apply(
            "Conv",
            [name, draft.weight(wide, 1, 3, 3, fan=9)],
            (*y.shape[:2], *(_halved(extent) for extent in y.shape[2:])),
            strides=[2, 2],
            group=wide,
        )
    else:
        y = convolve(draft, y, wide, wide, (3, 3))
    convolve(draft, activation(draft, y), draft.channels(), 1, (1, 1))


def _halved(extent: int | tuple[int, ...]) -> int | tuple[int, ...]:
    return tuple(size // 2 for size in extent) if isinstance(extent, tuple) else extent // 2


@operator(1)
def squeeze_excite(draft: Draft) -> None:
    x = draft.pick(4)
    channels, few = x.fix_extents(1), draft.choose((1, 4, 8, 12))
    x.fill_inputs(2, 3)
    mean = draft.node("GlobalAveragePool", [x.name])[0]
    inner = draft.node("Conv", [mean, draft.weight(few, channels, 1, 1, fan=channels)])[0]
    bent = draft.node("Relu", [inner])[0]
    outer = draft.node("Conv", [bent, draft.weight(channels, few, 1, 1, fan=few)])[0]
    gate = draft.node(draft.choose(("Sigmoid", "HardSigmoid")), [outer])[0]
    draft.apply("Mul", [x.name, gate], x.shape)


@operator(1)
def residual(draft: Draft) -> None:
    """Two layers beside the identity."""
    x = draft.pick(3, 4)
    if x.rank == 4:
        channels = x.fix_extents(1)
        weights = [draft.weight(channels, channels, 3, 3, fan=9 * channels) for _ in range(2)]
        one = draft.node("Conv", [x.name, weights[0]], pads=[1] * 4)[0]
        x.fill_inputs(2, 3)
        two = draft.node("Conv", [draft.node("Relu", [one])[0], weights[1]], pads=[1] * 4)[0]
    else:
        inner = activation(draft, project(draft, x, draft.channels()))
        two = project(draft, inner, x.fix_extents(-1)).name
    draft.apply("Add", [two, x.name], x.shape)

"""Pools over windows and over whole images."""

from typing import Any

from tests.fuzz.draft import Draft, Inapplicable, each, least
from tests.fuzz.operators.convolution import padding, windows
from tests.fuzz.registry import operator


@operator(4)
def pool(draft: Draft) -> None:
    x = draft.pick(4)
    op = draft.choose(("MaxPool", "AveragePool"))
    kernel = draft.choose(((2, 2), (3, 3), (3, 2), (1, 3)))
    strides = draft.choose(((1, 1), (2, 2), (2, 2), (1, 2)))
    padded = padding(draft, kernel)
    attributes: dict[str, Any] = {"kernel_shape": kernel, "strides": strides, **padded}
    if op == "AveragePool" and draft.chance(0.5):
        attributes["count_include_pad"] = 1
    space = [
        windows(x.shape[2 + index], index, kernel[index], strides[index], 1, 2, padded)
        for index in range(2)
    ]
    draft.apply(op, [x.name], (*x.shape[:2], *space), **attributes)


@operator(0.5)
def pool_ceil_mode(draft: Draft) -> None:
    x = draft.pick(4)
    kernel, stride = draft.choose(((2, 2), (3, 2), (3, 3)))
    if min(map(least, x.shape[2:])) < kernel:
        raise Inapplicable
    space = [each(lambda n: -(-(n - kernel) // stride) + 1, extent) for extent in x.shape[2:]]
    draft.apply(
        draft.choose(("MaxPool", "AveragePool")),
        [x.name],
        (*x.shape[:2], *space),
        kernel_shape=[kernel, kernel],
        strides=[stride, stride],
        ceil_mode=1,
    )


@operator(0.7)
def global_pool(draft: Draft) -> None:
    x = draft.pick(4)
    x.fill_inputs(2, 3)
    op = draft.choose(("GlobalAveragePool", "GlobalMaxPool"))
    draft.apply(op, [x.name], (*x.shape[:2], 1, 1))

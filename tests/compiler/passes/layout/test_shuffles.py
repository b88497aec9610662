from typing import Any

import numpy as np
import pytest
import tvm
from tvm import relax, te, tirx

from compiler.passes.layout.channels_last import ChannelsLast
from tests.compiler.conftest import build_module
from tests.compiler.passes.layout.test_channels_last import ops_of

op = relax.op
W = np.random.default_rng(5).standard_normal((10, 10, 1, 1)).astype("float32")
INPUTS = {"x": (("n", 10, "h", "w"), "float32")}


def conv(builder: Any, x: Any) -> Any:
    return builder.emit(op.nn.conv2d(x, relax.const(W)))


def convolve_twice(builder: Any, x: Any) -> list[Any]:
    first = conv(builder, x)
    return [first, conv(builder, first)]


def slice_channels(builder: Any, x: Any, first: int) -> Any:
    """Ten channels, as importers write slices of images with open dims."""

    def program(t: Any) -> Any:
        shape = [t.shape[0], tirx.IntImm("int64", 10), *t.shape[2:]]
        return te.compute(shape, lambda n, c, h, w: t[n, c + first, h, w], name="slice")

    return builder.emit_te(program, x)


def shuffle(builder: Any, x: Any, groups: int, axes: Any = (0, 2, 1, 3, 4)) -> Any:
    n, c, h, w = x.ty.shape.values
    split = relax.ShapeExpr([n, groups, int(c) // groups, h, w])
    turned = builder.emit(op.permute_dims(builder.emit(op.reshape(x, split)), axes))
    return builder.emit(op.reshape(turned, x.ty.shape))


def unit(builder: Any, x: Any) -> Any:
    """Both halves of two groups, shuffled: one is convolved, the other one passes."""
    parts = convolve_twice(builder, x)
    channels = shuffle(builder, builder.emit(op.concat(parts, 1)), 2)
    passed, taken = (slice_channels(builder, channels, first) for first in (0, 10))
    return builder.emit(op.add(passed, conv(builder, taken)))


def odd_slice(builder: Any, x: Any) -> Any:
    parts = convolve_twice(builder, x)
    channels = shuffle(builder, builder.emit(op.concat(parts, 1)), 2)
    return conv(builder, slice_channels(builder, channels, 3))


def shuffle_all(builder: Any, x: Any) -> Any:
    """A shuffle of one image, which nothing slices."""
    return conv(builder, shuffle(builder, conv(builder, x), 2))


def other_parts(builder: Any, x: Any) -> Any:
    """The concatenation has two parts, the shuffle four groups."""
    parts = convolve_twice(builder, x)
    channels = shuffle(builder, builder.emit(op.concat(parts, 1)), 4)
    return conv(builder, slice_channels(builder, channels, 10))


def twice(builder: Any, x: Any) -> Any:
    """A slice of a shuffle is shuffled with another image."""
    parts = convolve_twice(builder, x)
    first = slice_channels(builder, shuffle(builder, builder.emit(op.concat(parts, 1)), 2), 0)
    again = [first, conv(builder, first)]
    return conv(
        builder, slice_channels(builder, shuffle(builder, builder.emit(op.concat(again, 1)), 2), 10)
    )


def many_groups(builder: Any, x: Any) -> Any:
    return conv(builder, shuffle(builder, conv(builder, x), 5))


def other_axes(builder: Any, x: Any) -> Any:
    return conv(builder, shuffle(builder, conv(builder, x), 2, [0, 1, 2, 3, 4]))


INSIDE = {
    unit: ["permute_dims", *["nn.conv2d"] * 2, *["call_tir"] * 2, "nn.conv2d", "add"],
    odd_slice: ["permute_dims", *["nn.conv2d"] * 2, "call_tir", "nn.conv2d"],
    shuffle_all: ["permute_dims", "nn.conv2d", "call_tir", "nn.conv2d"],
    other_parts: ["permute_dims", *["nn.conv2d"] * 2, "concat", "call_tir", "nn.conv2d"],
    twice: [
        *["permute_dims", "nn.conv2d", "nn.conv2d", "call_tir", "nn.conv2d", "call_tir"],
        "nn.conv2d",
    ],
}
"""What is between the first transpose and the last one: neither views nor concatenations."""


@pytest.mark.parametrize("graph", INSIDE, ids=lambda graph: graph.__name__)
def test_a_shuffle_is_one_program_of_its_groups(graph):
    after = ChannelsLast().apply(build_module(graph, INPUTS))
    relax.analysis.well_formed(after)
    assert ops_of(after) == [*INSIDE[graph], "permute_dims"]


@pytest.mark.parametrize("graph", [many_groups, other_axes], ids=lambda graph: graph.__name__)
def test_other_views_stay(graph):
    after = ChannelsLast().apply(build_module(graph, INPUTS))
    assert [name for name in ops_of(after) if name == "reshape"] == ["reshape"] * 2


@pytest.mark.parametrize(
    "graph", [*INSIDE, many_groups, other_axes], ids=lambda graph: graph.__name__
)
def test_the_numbers_stay_the_same(graph, draw):
    module = build_module(graph, INPUTS)
    image = tvm.runtime.tensor(draw.standard_normal((2, 10, 5, 3)).astype("float32"))
    results = [
        relax.VirtualMachine(tvm.compile(one, "llvm"), tvm.cpu())["main"](image).numpy()
        for one in (module, ChannelsLast().apply(module))
    ]
    np.testing.assert_allclose(results[0], results[1], rtol=1e-4, atol=1e-4)

import re

import numpy as np
import pytest
from tvm import relax, te, tirx

from compiler.codegen.generate import generate
from compiler.ir.ops.math.reduce import extreme_reducer, lowest
from compiler.passes.manager import lower
from tests.compiler.conftest import HOST, build_module
from tests.compiler.passes.references import convolution

op = relax.op

WINDOWS = {
    "3x3": (48, (3, 3), (1, 1), (1, 1, 1, 1), (1, 1)),
    "3x3 in steps": (24, (3, 3), (2, 2), (0, 1, 1, 0), (1, 1)),
    "5x5": (32, (5, 5), (1, 1), (2, 2, 2, 2), (1, 1)),
    "5x5 in steps": (40, (5, 5), (2, 2), (2, 2, 2, 2), (1, 1)),
    "without padding": (16, (3, 3), (1, 1), (0, 0, 0, 0), (1, 1)),
    "uneven": (17, (2, 3), (3, 1), (1, 2, 0, 0), (1, 1)),
    "dilated": (16, (3, 3), (1, 1), (2, 2, 2, 2), (2, 2)),
    "strided and dilated": (64, (3, 3), (2, 2), (2, 2, 2, 2), (2, 2)),
    "far apart": (16, (2, 2), (5, 5), (0, 0, 0, 0), (1, 1)),
    "many channels": (336, (3, 3), (1, 1), (1, 1, 1, 1), (1, 1)),
    "too many taps": (16, (7, 7), (1, 1), (3, 3, 3, 3), (1, 1)),
}
"""Channels, window, strides, padding (top, left, bottom, right), dilation."""

SIZES = [(1, 1), (2, 3), (3, 2), (4, 9), (5, 5), (7, 7), (8, 13), (14, 14), (23, 6), (31, 17)]


@pytest.mark.parametrize("name", WINDOWS)
def test_a_depthwise_convolution_of_every_extent(name, compile_graph, draw):
    channels, kernel, strides, pads, dilation = WINDOWS[name]
    w = draw.standard_normal((channels, 1, *kernel)).astype("float32")
    bias = draw.standard_normal((1, channels, 1, 1)).astype("float32")

    def graph(builder, x):
        y = op.nn.conv2d(x, relax.const(w), strides, pads, dilation, channels)
        return op.nn.relu(op.add(y, relax.const(bias)))

    model = compile_graph(graph, {"x": (("n", channels, "h", "w"), "float32")})
    reach = [1 + (taps - 1) * step for taps, step in zip(kernel, dilation, strict=True)]
    for n, (height, width) in enumerate(SIZES):
        if height + pads[0] + pads[2] < reach[0] or width + pads[1] + pads[3] < reach[1]:
            continue
        x = draw.standard_normal((n % 4, channels, height, width)).astype("float32")
        exact = convolution(
            x.astype("float64"), w.astype("float64"), strides, pads, dilation, channels
        )
        np.testing.assert_allclose(model(x), np.maximum(exact + bias, 0), rtol=1e-4, atol=1e-4)


def test_what_lies_beside_an_image_is_not_read(compile_graph, draw):
    """Infinities at the borders reach the results of their windows, and no NaN comes of padding."""
    w = np.abs(draw.standard_normal((32, 1, 3, 3))).astype("float32")

    def graph(builder, x):
        return op.nn.conv2d(x, relax.const(w), (1, 1), (1, 1, 1, 1), groups=32)

    model = compile_graph(graph, {"x": ((1, 32, "h", "w"), "float32")})
    for height, width in SIZES[3:]:
        x = np.zeros((1, 32, height, width), "float32")
        x[:, :, [0, -1]] = x[:, :, :, [0, -1]] = np.inf
        got = model(x)
        assert not np.isnan(got).any()
        near = np.ones((height, width), bool)
        near[2:-2, 2:-2] = False
        np.testing.assert_array_equal(np.isinf(got[0]), np.broadcast_to(near, got[0].shape))


@pytest.mark.parametrize("batch", [1, 2, 5])
def test_images_of_one_row_and_several_at_once(batch, compile_graph, draw):
    """With one row in each, the images themselves are the rows."""
    w = draw.standard_normal((64, 1, 1, 5)).astype("float32")

    def graph(builder, x):
        return op.nn.conv2d(x, relax.const(w), (1, 1), (0, 2, 0, 2), groups=64)

    model = compile_graph(graph, {"x": (("n", 64, 1, "w"), "float32")})
    for width in (1, 4, 5, 6, 29):
        x = draw.standard_normal((batch, 64, 1, width)).astype("float32")
        exact = convolution(
            x.astype("float64"), w.astype("float64"), (1, 1), (0, 2, 0, 2), (1, 1), 64
        )
        np.testing.assert_allclose(model(x), exact, rtol=1e-4, atol=1e-4)


def pooling_program(keep_nan):
    """The greatest of each 3x3 window with channels last, at every second place."""
    zero, two = (tirx.IntImm("int64", value) for value in (0, 2))

    def program(x):
        i, j = (te.reduce_axis((zero, tirx.IntImm("int64", 3))) for _ in range(2))

        def value_at(n, y, z, c):
            y, z = y * two + i - 1, z * two + j - 1
            inside = tirx.all(y >= zero, y < x.shape[1], z >= zero, z < x.shape[2])
            value = tirx.if_then_else(inside, x(n, y, z, c), lowest("float32"))
            return extreme_reducer("max", "float32", keep_nan)(value, axis=[i, j])

        n, height, width, channels = x.shape
        shape = (n, (height + 1) // two, (width + 1) // two, channels)
        return te.compute(shape, value_at, name="max_pool")

    def graph(builder, x):
        return builder.emit_te(program, x, primfunc_name_hint="max_pool")

    return graph, {"x": ((1, "h", "w", 64), "float32")}


def test_a_greatest_element_that_keeps_nan(compile_graph, draw):
    model = compile_graph(*pooling_program(keep_nan=True))
    for height, width in SIZES:
        x = draw.standard_normal((1, height, width, 64)).astype("float32")
        x[draw.random(x.shape) < 0.1] = np.nan
        x[draw.random(x.shape) < 0.1] = -np.inf
        padded = np.pad(x, ((0, 0), (1, 2), (1, 2), (0, 0)), constant_values=-np.inf)
        taps = [
            padded[:, i : i + height : 2, j : j + width : 2] for i in range(3) for j in range(3)
        ]
        np.testing.assert_array_equal(model(x), np.max(taps, axis=0))


def test_keeping_nan_takes_few_instructions():
    """One comparison beside each maximum, and where there are no masks a blend: none element by
    element.
    """
    counts = []
    for keep_nan in (False, True):
        executable = generate(lower(build_module(*pooling_program(keep_nan)), HOST, {}), HOST)
        code = "".join(module.inspect_source("asm") for module in executable.mod.imports)
        counts.append(len(re.findall(r"^\s+[a-z]\w* ", code.replace("\t", " "), re.MULTILINE)))
    plain, keeping = counts
    assert plain < keeping < 1.4 * plain

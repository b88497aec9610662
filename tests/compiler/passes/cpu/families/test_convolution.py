import numpy as np
import pytest
from tvm import relax, te

from compiler.passes.manager import lower
from tests.compiler.conftest import HOST, build_module
from tests.compiler.passes.references import convolution

op = relax.op


CASES = {
    "1x1 strided": (24, 16, (1, 1), (2, 2), (0, 0, 0, 0), (1, 1), 1),
    "dilated and uneven": (8, 17, (3, 2), (1, 2), (2, 0, 1, 1), (2, 1), 1),
    "half of a wide vector": (3, 8, (3, 3), (2, 2), (1, 1, 1, 1), (1, 1), 1),
    "a quarter of it": (3, 4, (3, 3), (1, 1), (1, 1, 1, 1), (1, 1), 1),
    "one result": (32, 1, (3, 3), (1, 1), (1, 1, 1, 1), (1, 1), 1),
    "one result, strided and dilated": (19, 1, (3, 5), (2, 1), (0, 2, 3, 1), (1, 2), 1),
    "one result of few channels": (3, 1, (3, 3), (1, 1), (1, 1, 1, 1), (1, 1), 1),
    "deep": (300, 5, (3, 3), (1, 1), (1, 1, 1, 1), (1, 1), 1),
    "narrow groups": (24, 24, (3, 3), (1, 1), (1, 1, 1, 1), (1, 1), 6),
    "an odd number of groups of eight": (40, 40, (3, 3), (1, 1), (1, 1, 1, 1), (1, 1), 5),
    "groups of eight, strided": (48, 48, (3, 3), (2, 2), (1, 1, 1, 1), (1, 1), 6),
    "wide groups": (36, 68, (3, 2), (2, 1), (1, 0, 1, 1), (1, 2), 2),
    "1x1 grouped": (30, 60, (1, 1), (1, 1), (0, 0, 0, 0), (1, 1), 3),
    "several results a channel": (10, 30, (3, 3), (1, 1), (1, 1, 1, 1), (1, 1), 10),
}


@pytest.mark.parametrize("name", CASES)
def test_convolution_with_its_epilogue_for_every_extent(name, compile_graph, draw):
    channels, out, kernel, strides, pads, dilation, groups = CASES[name]
    w = draw.standard_normal((out, channels // groups, *kernel)).astype("float32")
    bias = draw.standard_normal((1, out, 1, 1)).astype("float32")

    def graph(builder, x):
        y = op.nn.conv2d(x, relax.const(w), strides, pads, dilation, groups)
        return op.nn.relu(op.add(y, relax.const(bias)))

    model = compile_graph(graph, {"x": (("n", channels, "h", "w"), "float32")})
    for n, h, width in [(1, 7, 7), (2, 8, 13), (1, 14, 5), (3, 20, 23)]:
        x = draw.standard_normal((n, channels, h, width)).astype("float32")
        want = np.maximum(
            convolution(x.astype("float64"), w.astype("float64"), strides, pads, dilation, groups)
            + bias,
            0,
        )
        np.testing.assert_allclose(model(x), want, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("out", [16, 24, 32])
@pytest.mark.parametrize("stride", [1, 2])
def test_strips_stay_within_lines_of_every_length(stride, out, compile_graph, draw):
    """Lines that strips fill, or nearly fill; strips of others end with the line."""
    w = draw.standard_normal((out, 3, 3, 3)).astype("float32")

    def graph(builder, x):
        return op.nn.relu(op.nn.conv2d(x, relax.const(w), (stride, stride), (1, 1, 1, 1)))

    model = compile_graph(graph, {"x": (("n", 3, "h", "w"), "float32")})
    for columns in (*range(1, 18), 23, 25, 26, 31, 63, 64, 65):
        x = draw.standard_normal((2, 3, 5, columns * stride)).astype("float32")
        sides = (stride, stride), (1, 1, 1, 1), (1, 1), 1
        want = np.maximum(convolution(x.astype("float64"), w.astype("float64"), *sides), 0)
        np.testing.assert_allclose(model(x), want, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("strides", [(1, 1), (1, 2), (1, 3)])
def test_a_program_after_a_convolution_meets_the_shape_it_was_written_for(
    strides, compile_graph, draw
):
    w = draw.standard_normal((8, 1, 1, 4)).astype("float32")
    pads = (0, 3, 0, 3)

    def graph(builder, x):
        y = builder.emit(op.nn.conv2d(x, relax.const(w), strides, pads, groups=8))
        return builder.call_te(lambda t: te.compute(t.shape, lambda *index: -t(*index)), y)

    model = compile_graph(graph, {"x": ((1, 8, 1, "w"), "float32")})
    for width in (1, 5, 12):
        x = draw.standard_normal((1, 8, 1, width)).astype("float32")
        want = -convolution(x.astype("float64"), w.astype("float64"), strides, pads, (1, 1), 8)
        np.testing.assert_allclose(model(x), want, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("batch", "channels", "taps", "stride"),
    [("n", 48, 9, 1), (1, 13, 31, 1), (1, 16, 3, 2), ("n", 8, 8, 3)],
)
def test_depthwise_rows_of_every_length(batch, channels, taps, stride, compile_graph, draw):
    w = draw.standard_normal((channels, 1, 1, taps)).astype("float32")
    pads = (0, taps // 2, 0, taps // 2)

    def graph(builder, x):
        return op.nn.relu(op.nn.conv2d(x, relax.const(w), (1, stride), pads, groups=channels))

    model = compile_graph(graph, {"x": ((batch, channels, 1, "w"), "float32")})
    for width in (1, 2, 7, 8, 9, 31, 41):
        x = draw.standard_normal((2 if batch == "n" else 1, channels, 1, width)).astype("float32")
        want = np.maximum(
            convolution(
                x.astype("float64"), w.astype("float64"), (1, stride), pads, (1, 1), channels
            ),
            0,
        )
        np.testing.assert_allclose(model(x), want, rtol=1e-4, atol=1e-4)


def test_accumulated_integers_are_exact(compile_graph, draw):
    w = draw.integers(-127, 128, (32, 16, 3, 3)).astype("float32")
    model = compile_graph(
        lambda builder, x: op.nn.conv2d(x, relax.const(w), padding=(1, 1)),
        {"x": ((1, 16, "h", "w"), "float32")},
    )
    x = draw.integers(-128, 128, (1, 16, 24, 24)).astype("float32")
    np.testing.assert_array_equal(
        model(x), convolution(x.astype("float64"), w, (1, 1), (1, 1, 1, 1), (1, 1), 1)
    )


@pytest.mark.parametrize(
    ("channels", "out", "chosen"), [(32, 1, True), (1, 1, False), (32, 2, False)]
)
def test_one_result_of_a_long_window_is_summed_in_vectors(channels, out, chosen, draw):
    w = relax.const(draw.standard_normal((out, channels, 3, 3)).astype("float32"))
    module = build_module(
        lambda builder, x: op.nn.conv2d(x, w, padding=(1, 1)),
        {"x": (("n", channels, "h", "w"), "float32")},
    )
    names = [gvar.name_hint for gvar in lower(module, HOST, {}).functions]
    assert any("single_conv" in name for name in names) is chosen


@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("shared", [(0,), (2,), (0, 3), ()])
def test_a_residual_may_be_shared_by_images_lines_or_positions(compile_graph, draw, shared, groups):
    """Only what every row reads for itself can be walked row by row, without its place."""
    channels, out, height, width = 32, 64, 5, 7
    w = (draw.standard_normal((out, channels // groups, 3, 3)) * 0.1).astype("float32")
    full = (3, out, height, width)
    added = draw.standard_normal([1 if i in shared else full[i] for i in range(4)]).astype(
        "float32"
    )

    def graph(builder, x):
        y = op.nn.conv2d(x, relax.const(w), (2, 2), (1, 1, 1, 1), (1, 1), groups)
        return op.nn.relu(op.add(y, relax.const(added)))

    model = compile_graph(graph, {"x": ((3, channels, 2 * height, 2 * width), "float32")})
    x = draw.standard_normal((3, channels, 2 * height, 2 * width)).astype("float32")
    exact = convolution(
        x.astype("float64"), w.astype("float64"), (2, 2), (1, 1, 1, 1), (1, 1), groups
    )
    np.testing.assert_allclose(model(x), np.maximum(exact + added, 0), rtol=1e-4, atol=1e-4)

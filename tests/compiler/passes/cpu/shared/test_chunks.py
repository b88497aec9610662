"""Chunks of long sums, and the rounding errors that they leave."""

import numpy as np
import pytest
from tvm import relax

from compiler.passes.cpu.shared.chunks import CHUNK, chunk_length, is_chunked, outer_axes
from tests.compiler.passes.references import convolution

op = relax.op


@pytest.mark.parametrize("multiple", [1, 4])
def test_chunks_are_about_equally_long(multiple):
    for depth in range(1, 5000):
        chunk = chunk_length(depth, multiple)
        number = -(-depth // chunk)
        assert chunk <= 1.5 * CHUNK + multiple
        assert number == 1 or (chunk % multiple == 0 and chunk >= CHUNK // 2)


@pytest.mark.parametrize(
    ("extents", "outer", "chunked"),
    [
        ([64], 0, False),
        ([1000], 0, True),
        ([None], 0, True),
        ([3, 3, 8], 0, False),
        ([5, 5, 12], 1, True),
        ([3, 3, 64], 2, True),
        ([3, 3, 500], 2, True),
        ([1000, 3], 0, False),
        ([3, 3, None], 2, True),
        ([None, 3], 0, False),
    ],
)
def test_axes_of_a_chunk_are_the_innermost(extents, outer, chunked):
    assert (outer_axes(extents), is_chunked(extents)) == (outer, chunked)


def relative_error(got, exact):
    return np.sqrt(np.square(got - exact).mean()) / exact.std()


def test_deep_matmuls_by_constants_are_nearly_as_exact_as_shallow_ones(compile_graph, draw):
    """One accumulator leaves 9.1e-7 for 3,072 products."""
    w = (draw.standard_normal((3072, 40)) / 3072**0.5).astype("float32")
    model = compile_graph(
        lambda builder, x: op.matmul(x, relax.const(w)), {"x": (("m", 3072), "float32")}
    )
    for rows in (1, 7, 100):
        x = draw.standard_normal((rows, 3072)).astype("float32")
        assert relative_error(model(x), x.astype("float64") @ w) < 3.5e-7


def test_deep_matmuls_of_two_inputs_are_nearly_as_exact_as_shallow_ones(compile_graph, draw):
    """One accumulator leaves 7.9e-7."""
    model = compile_graph(
        lambda builder, x, y: op.matmul(x, y),
        {"x": (("m", "k"), "float32"), "y": (("k", "n"), "float32")},
    )
    x, y = (draw.standard_normal(shape).astype("float32") for shape in ((30, 2048), (2048, 70)))
    assert relative_error(model(x, y), x.astype("float64") @ y) < 4.5e-7


@pytest.mark.parametrize("groups", [1, 2])
def test_long_windows_are_nearly_as_exact_as_short_ones(compile_graph, draw, groups):
    """One accumulator leaves 5.6e-7 and 8.1e-7."""
    w = draw.standard_normal((48, 256 // groups, 3, 3)).astype("float32")
    model = compile_graph(
        lambda builder, x: op.nn.conv2d(x, relax.const(w), 2, [1] * 4, 1, groups),
        {"x": (("n", 256, "h", "w"), "float32")},
    )
    x = draw.standard_normal((1, 256, 14, 14)).astype("float32")
    exact = convolution(x.astype("float64"), w.astype("float64"), (2, 2), [1] * 4, groups=groups)
    assert relative_error(model(x), exact) < 3e-7

"""Convolutions with one output channel: rows that end anywhere in tiles, runs that fill no vector,
what is not finite, and what the family leaves to others.
"""

from typing import Any

import numpy as np
import pytest
from tvm import relax

from compiler.passes.framework.kernel_notes import KernelNote
from compiler.passes.manager import lower
from tests.compiler.conftest import HOST, Compiled, build_module
from tests.compiler.passes.references import convolution
from tests.support.geometries import GEOMETRIES, geometry

op = relax.op

PADS = (1, 2, 1, 2)
WIDTHS = (1, 2, 3, 7, 8, 9, 15, 16, 17, 23, 24, 25, 31, 33, 40, 255, 256, 257, 264, 273)
"""Of images: rows around the ends of tiles, and of strips."""


def score(weight: np.ndarray, strides: Any = (1, 1), dilation: Any = (1, 1)) -> Any:
    """The sigmoid of a padded convolution."""

    def graph(builder: Any, x: Any) -> Any:
        return op.sigmoid(op.nn.conv2d(x, relax.const(weight), strides, PADS, dilation))

    return graph


@pytest.mark.parametrize("name", GEOMETRIES)
@pytest.mark.parametrize(
    ("channels", "strides", "dilation"),
    [(8, (1, 1), (1, 1)), (7, (2, 1), (1, 1)), (4, (1, 2), (2, 1)), (19, (1, 1), (1, 2))],
    ids=("whole halves of a vector", "odd runs", "strided", "dilated"),
)
def test_rows_of_every_length_at_every_geometry(name, channels, strides, dilation, draw):
    weight = draw.standard_normal((1, channels, 3, 5)).astype("float32") * np.float32(0.1)
    inputs = {"x": (("n", channels, "h", "w"), "float32")}
    model = Compiled(build_module(score(weight, strides, dilation), inputs), geometry(name))
    for width in WIDTHS:
        if width + 4 <= 4 * dilation[1]:
            continue  # the window is wider than the padded image
        x = draw.standard_normal((2, channels, 5, width)).astype("float32")
        exact = convolution(x.astype("float64"), weight, strides, PADS, dilation, 1)
        np.testing.assert_allclose(model(x), 1 / (1 + np.exp(-exact)), rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize("name", GEOMETRIES)
def test_bits_of_a_position_depend_neither_on_its_tile_nor_on_other_images(name, draw):
    weight = draw.standard_normal((1, 9, 3, 5)).astype("float32")
    graph = lambda builder, x: op.nn.conv2d(x, relax.const(weight))  # noqa: E731
    model = Compiled(build_module(graph, {"x": (("n", 9, "h", "w"), "float32")}), geometry(name))
    x = draw.standard_normal((3, 9, 6, 300)).astype("float32")
    batch = model(x)
    for start, width in ((0, 300), (1, 280), (5, 31), (13, 12), (290, 5)):
        part = model(x[1:2, :, :, start : start + width])
        np.testing.assert_array_equal(part, batch[1:2, :, :, start : start + width - 4])


@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan])
def test_what_is_not_finite_reaches_its_windows_alone(value, compile_graph, draw):
    """Whichever element of a run it is, in a vector that skips some lanes too."""
    weight = np.abs(draw.standard_normal((1, 3, 1, 7))).astype("float32") + np.float32(0.1)
    model = compile_graph(
        lambda builder, x: op.nn.conv2d(x, relax.const(weight)),
        {"x": ((1, 3, 1, "w"), "float32")},
    )
    for channel in range(3):
        for position in range(30):
            x = draw.standard_normal((1, 3, 1, 30)).astype("float32")
            x[0, channel, 0, position] = value
            families = model(x)[0, 0, 0]
            reached = range(max(position - 6, 0), min(position + 1, 24))
            others = np.delete(families, reached)
            np.testing.assert_array_equal(families[list(reached)], value)
            assert np.isfinite(others).all()


def families_of(graph: Any, shape: tuple[Any, ...]) -> set[str]:
    module = lower(build_module(graph, {"x": (shape, "float32")}), HOST, {})
    notes = [KernelNote.of(func) for func in module.functions.values()]
    return {note.family for note in notes if note is not None}


@pytest.mark.parametrize(
    ("shape", "strides", "dilation", "taken"),
    [
        (("n", 32, "h", "w"), (1, 1), (1, 1), True),
        (("n", 8, 20, 20), (2, 2), (1, 1), True),
        (("n", 3, "h", "w"), (1, 1), (1, 2), False),
        (("n", 32, "h", 2), (1, 1), (1, 1), False),
    ],
    ids=("any extents", "strided", "short runs", "rows of two"),
)
def test_which_convolutions_are_taken(shape, strides, dilation, taken, draw):
    weight = draw.standard_normal((1, shape[1], 3, 5)).astype("float32")
    families = families_of(score(weight, strides, dilation), shape)
    assert ("single_conv" in families) is taken

"""Images whose channels squeeze-excite blocks multiply: they are scaled where a convolution of one
place gathers them, and elsewhere in a kernel of their own.
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

SIZES = ((1, 1), (1, 2), (2, 3), (3, 4), (5, 5), (7, 7), (11, 13), (14, 14), (24, 25))
"""Extents of images around the ends of tiles, and of tasks."""


def block(weight: np.ndarray, stride: int = 1, residual: bool = False) -> Any:
    """relu(convolution of x times the sigmoid of its means, plus x); a convolution that changes
    nothing brings x into the layout of images.
    """
    channels = weight.shape[1]
    unchanged = relax.const(np.eye(channels, dtype="float32").reshape(channels, channels, 1, 1))

    def graph(builder: Any, x: Any) -> Any:
        x = builder.emit(op.nn.conv2d(x, unchanged))
        mean = builder.emit(op.mean(x, [2, 3], keepdims=True))
        scaled = builder.emit(op.multiply(builder.emit(op.sigmoid(mean)), x))
        result = builder.emit(op.nn.conv2d(scaled, relax.const(weight), (stride, stride)))
        return op.nn.relu(builder.emit(op.add(result, scaled)) if residual else result)

    return graph


def reference(x: np.ndarray, weight: np.ndarray, stride: int = 1) -> np.ndarray:
    x = x.astype("float64")
    scaled = x / (1 + np.exp(-x.mean((2, 3), keepdims=True)))
    result = convolution(scaled, weight, (stride, stride), (0, 0, 0, 0), (1, 1), 1)
    return np.maximum(result, 0)


@pytest.mark.parametrize("name", GEOMETRIES)
@pytest.mark.parametrize(
    ("channels", "columns", "stride"),
    [(24, 40, 1), (16, 16, 1), (130, 70, 1), (400, 200, 1), (33, 20, 2)],
    ids=("shallow", "one vector", "deep", "shared out by panels", "odd and strided"),
)
def test_every_size_at_every_geometry(name, channels, columns, stride, draw):
    weight = draw.standard_normal((columns, channels, 1, 1)).astype("float32") * np.float32(0.2)
    inputs = {"x": (("n", channels, "h", "w"), "float32")}
    model = Compiled(build_module(block(weight, stride), inputs), geometry(name))
    for number, (height, width) in enumerate(SIZES):
        x = draw.standard_normal((1 + number % 3, channels, height, width)).astype("float32")
        np.testing.assert_allclose(model(x), reference(x, weight, stride), rtol=2e-5, atol=2e-5)


def test_what_is_not_finite_stays_in_its_channel_of_its_image(draw):
    weight = draw.standard_normal((40, 24, 1, 1)).astype("float32")
    model = Compiled(build_module(block(weight), {"x": (("n", 24, "h", "w"), "float32")}))
    x = draw.standard_normal((3, 24, 5, 5)).astype("float32")
    want = model(x)
    x[1, 3] = np.nan
    got = model(x)
    np.testing.assert_array_equal(got[[0, 2]], want[[0, 2]])
    assert np.isnan(got[1]).all()


def test_padding_stays_zero_where_a_factor_is_infinite():
    """The border of the result is 0, not 0 times infinity."""
    unchanged = relax.const(np.eye(16, dtype="float32").reshape(16, 16, 1, 1))

    def graph(builder: Any, x: Any, gate: Any) -> Any:
        scaled = builder.emit(op.multiply(builder.emit(op.nn.conv2d(x, unchanged)), gate))
        return op.nn.relu(op.nn.conv2d(scaled, unchanged, padding=(1, 1, 1, 1)))

    inputs = {"x": (("n", 16, "h", "w"), "float32"), "gate": (("n", 16, 1, 1), "float32")}
    x, gate = np.ones((1, 16, 4, 5), "float32"), np.full((1, 16, 1, 1), np.inf, "float32")
    result = Compiled(build_module(graph, inputs))(x, gate)
    result[:, :, 1:-1, 1:-1] = 0
    np.testing.assert_array_equal(result, 0)


@pytest.mark.parametrize(
    ("graph", "kernels"),
    [
        (block(np.ones((40, 24, 1, 1), "float32")), {"fused_panel_conv1_relu"}),
        # Read twice, the product is computed once.
        (
            block(np.ones((24, 24, 1, 1), "float32"), residual=True),
            {"multiply_apart", "fused_panel_conv_add_relu"},
        ),
        (block(np.ones((40, 24, 3, 3), "float32")), {"multiply_apart", "fused_panel_conv1_relu"}),
    ],
    ids=("one reader", "two readers", "a window"),
)
def test_which_kernels_there_are(graph, kernels):
    module = lower(build_module(graph, {"x": ((1, 24, 30, 30), "float32")}), HOST, {})
    names = {
        gvar.name_hint for gvar, func in module.functions.items() if KernelNote.of(func) is not None
    }
    assert {name for name in names if "apart" in name or "relu" in name} == kernels

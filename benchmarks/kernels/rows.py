"""Cases of kernels that move more than they multiply: functions of elements, reductions of rows,
transposes, copies.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from tvm import relax

from benchmarks.kernels.case import Case, floats

op = relax.op

SOFTMAX, LAYER_NORM, GELU = 26, 9, 29
"""Operations of an element in the loops that the compiler writes, with exp and erf as the
polynomials that they become.
"""


def softmax(rows: int, columns: int) -> Case:
    """Softmax of each row."""
    return _rows("softmax", op.nn.softmax, rows, columns, SOFTMAX)


def layer_norm(rows: int, columns: int) -> Case:
    """Layer normalization of each row, with a scale and a shift."""
    ones = relax.const(np.ones(columns, "float32"))
    return _rows(
        "layer norm", lambda x: op.nn.layer_norm(x, ones, ones, [-1]), rows, columns, LAYER_NORM
    )


def gelu(rows: int, columns: int) -> Case:
    """By erf."""
    return _rows("GELU", op.nn.gelu, rows, columns, GELU)


def _rows(name: str, graph: Callable[[Any], Any], rows: int, columns: int, operations: int) -> Case:
    return Case(
        "generic",
        f"{name} {rows}x{columns}",
        lambda builder, x: graph(x),
        {"x": (("m", columns), "float32")},
        {"m": rows},
        operations * rows * columns,
        floats((2, rows, columns)),
    )


def scale_rows(batch: int, rows: int, columns: int) -> Case:
    """Rows of a few elements by the scales of their batch."""
    return Case(
        "generic",
        f"scaled {batch}x{rows}x{columns}",
        lambda builder, x, y: op.multiply(x, y),
        {"x": (("n", "m", columns), "float32"), "y": (("n", 1, columns), "float32")},
        {"n": batch, "m": rows},
        batch * rows * columns,
        floats((2, batch, rows, columns), (batch, columns)),
    )


def residual(batch: int, channels: int, size: int) -> Case:
    """The sum of two images and a rectifier, as behind a block of ResNet."""
    image = (("n", "h", "w", channels), "float32")
    return Case(
        "generic",
        f"add, ReLU {batch}x{size}x{size}x{channels}",
        lambda builder, x, y: op.nn.relu(op.add(x, y)),
        {"x": image, "y": image},
        {"n": batch, "h": size, "w": size},
        2 * batch * size**2 * channels,
        floats((3, batch, size, size, channels)),
    )


def mean(batch: int, size: int, channels: int) -> Case:
    """The mean of all points of an image, channel by channel."""
    return Case(
        "generic",
        f"mean of {batch}x{size}x{size}x{channels}",
        lambda builder, x: op.mean(x, [1, 2]),
        {"x": (("n", "h", "w", channels), "float32")},
        {"n": batch, "h": size, "w": size},
        batch * size**2 * channels,
        batch * floats((size, size, channels), (channels,)),
    )


def transpose(batch: int, channels: int, size: int) -> Case:
    """Channels of an image from the first axis to the last."""
    return Case(
        "transpose",
        f"{batch}x{channels}x{size}x{size}, channels last",
        lambda builder, x: op.permute_dims(x, [0, 2, 3, 1]),
        {"x": (("n", channels, "h", "w"), "float32")},
        {"n": batch, "h": size, "w": size},
        0,
        floats((2, batch, channels, size, size)),
    )


def copy(batch: int, rows: int, columns: int) -> Case:
    """A reshape whose result is an output of the model."""

    def graph(builder: Any, x: Any) -> Any:
        n, m, _ = x.ty.shape.values
        return op.reshape(x, relax.ShapeExpr([n * m, columns]))

    return Case(
        "copy",
        f"{batch}x{rows}x{columns}",
        graph,
        {"x": (("n", "m", columns), "float32")},
        {"n": batch, "m": rows},
        0,
        floats((2, batch, rows, columns)),
    )

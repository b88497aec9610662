"""Elementwise operators over results of convolutions of different rank, against ONNX Runtime: they
align at the end.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

from tests.compiler.ir.onnx.running import model_of, normal
from tests.compiler.passes.lowered import assert_like_onnxruntime

pytestmark = pytest.mark.slow

node = helper.make_node


def image_and_volume(operator: str, *order: str) -> Callable[[], onnx.ModelProto]:
    """Model of [4, 3, h, w] and [n, 2, 4, h, w], both convolved, in an order."""

    def make() -> onnx.ModelProto:
        constants = {"u": normal(4, 3, 3, 3), "v": normal(4, 2, 3, 3, 3), "zero": np.float32(0)}
        nodes = [
            node("Conv", ["image", "u"], ["a"], pads=[1] * 4),
            node("Conv", ["volume", "v"], ["b"], pads=[1] * 6),
            node("Greater", ["a", "zero"], ["c"]),
            node(operator, list(order), ["y"]),
        ]
        return model_of(
            nodes,
            {"image": "float32[4,3,h,w]", "volume": "float32[n,2,4,h,w]"},
            constants,
            outputs=["y"],
        )

    return make


def row_and(*extents: int) -> Callable[[], onnx.ModelProto]:
    """Model of a row, convolved, and a constant."""

    def make() -> onnx.ModelProto:
        nodes = [node("Conv", ["row", "u"], ["a"], pads=[1, 1]), node("Mul", ["a", "c"], ["y"])]
        return model_of(
            nodes,
            {"row": "float32[n,8,w]"},
            {"u": normal(12, 8, 3), "c": normal(*extents)},
            outputs=["y"],
        )

    return make


def row_and_image() -> onnx.ModelProto:
    """Model of [n, 12, w] and [m, n, 12, w], both convolved."""
    nodes = [
        node("Conv", ["row", "u"], ["a"], pads=[1, 1]),
        node("Conv", ["image", "v"], ["b"], pads=[1] * 4),
        node("Sub", ["a", "b"], ["y"]),
    ]
    constants = {"u": normal(12, 8, 3), "v": normal(5, 4, 3, 3)}
    return model_of(
        nodes, {"row": "float32[5,8,w]", "image": "float32[n,4,12,w]"}, constants, outputs=["y"]
    )


CASES: dict[str, Callable[[], onnx.ModelProto]] = {
    "image + volume": image_and_volume("Add", "a", "b"),
    "volume - image": image_and_volume("Sub", "b", "a"),
    "choice by image": image_and_volume("Where", "c", "b", "a"),
    "row * constant of an image": row_and(3, 1, 12, 1),
    "row * constant of a volume": row_and(2, 3, 1, 12, 1),
    "row * constant of a row": row_and(1, 12, 1),
    "row * columns": row_and(12, 1),
    "row - image": row_and_image,
}


@pytest.mark.parametrize("name", CASES)
def test_results_are_as_in_onnxruntime(name: str) -> None:
    model = CASES[name]()
    feeds = []
    for n, h, w in ((1, 4, 4), (2, 7, 5), (3, 5, 18)):
        dims: dict[str, Any] = {"n": n, "h": h, "w": w}
        shapes = {
            info.name: [
                axis.dim_value or dims[axis.dim_param] for axis in info.type.tensor_type.shape.dim
            ]
            for info in model.graph.input
        }
        feeds.append({name: normal(*shape) for name, shape in shapes.items()})
    assert_like_onnxruntime(model, feeds)

"""Small nets at the geometries of other processors, against ONNX Runtime: each at two of them, and
at all four by `make geometry`.
"""

import os
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

from tests.compiler.ir.onnx.running import model_of, normal
from tests.compiler.passes.lowered import assert_like_onnxruntime
from tests.support.geometries import GEOMETRIES, geometry

SHAPES = ((1, 8, 8), (2, 9, 17), (3, 24, 14))


def stem() -> tuple[onnx.ModelProto, int]:
    """2x2 convolutions of few channels, padded on one side, beside a pool in one concatenation."""
    constants = {"w0": normal(24, 3, 3, 3), "w1": normal(12, 24, 2, 2), "w2": normal(24, 12, 2, 2)}
    same: dict[str, Any] = {"kernel_shape": [2, 2], "auto_pad": "SAME_UPPER"}
    nodes = [
        helper.make_node("Conv", ["x", "w0"], ["c0"], strides=[2, 2], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c0"], ["r0"]),
        helper.make_node("Conv", ["r0", "w1"], ["c1"], **same),
        helper.make_node("Relu", ["c1"], ["r1"]),
        helper.make_node("Conv", ["r1", "w2"], ["c2"], **same),
        helper.make_node("Relu", ["c2"], ["r2"]),
        helper.make_node("MaxPool", ["r0"], ["p0"], **same),
        helper.make_node("Concat", ["p0", "r2"], ["y"], axis=1),
    ]
    scaled = {name: array * np.float32(0.2) for name, array in constants.items()}
    return model_of(nodes, {"x": "float32[n,3,h,w]"}, scaled, outputs=["y"]), 3


def mobile() -> tuple[onnx.ModelProto, int]:
    """A block as SAME padding of stride 2 is exported: padded on the right and below between a 1x1
    and a depthwise convolution.
    """
    constants = {
        "w1": normal(40, 16, 1, 1), "b1": normal(40), "w2": normal(40, 1, 3, 3),
        "w3": normal(24, 40, 1, 1), "low": np.float32(0), "high": np.float32(6),
        "pads": np.array([0, 0, 0, 0, 0, 0, 1, 1]),
    }  # fmt: skip
    nodes = [
        helper.make_node("Conv", ["x", "w1", "b1"], ["a"]),
        helper.make_node("Clip", ["a", "low", "high"], ["b"]),
        helper.make_node("Pad", ["b", "pads"], ["c"]),
        helper.make_node("Conv", ["c", "w2"], ["d"], strides=[2, 2], group=40),
        helper.make_node("Clip", ["d", "low", "high"], ["e"]),
        helper.make_node("Conv", ["e", "w3"], ["y"]),
    ]
    return model_of(nodes, {"x": "float32[n,16,h,w]"}, constants, outputs=["y"]), 16


def score() -> tuple[onnx.ModelProto, int]:
    """Pools whose windows have no place in common, and a score for each place: matmuls of one
    column, as deep as some vectors and a rest.
    """
    constants = {"w0": normal(40, 1), "w1": normal(40, 67), "w2": normal(67, 1)}
    nodes = [
        helper.make_node("MaxPool", ["x"], ["p"], kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("AveragePool", ["x"], ["q"], kernel_shape=[2, 2], strides=[2, 3]),
        helper.make_node("Transpose", ["p"], ["r"], perm=[0, 2, 3, 1]),
        helper.make_node("MatMul", ["r", "w0"], ["y"]),
        helper.make_node("MatMul", ["r", "w1"], ["s"]),
        helper.make_node("MatMul", ["s", "w2"], ["z"]),
    ]
    return model_of(nodes, {"x": "float32[n,40,h,w]"}, constants, outputs=["p", "q", "y", "z"]), 40


PAIRS = [(net, name) for net in (stem, mobile, score) for name in GEOMETRIES]
SAMPLE = [
    *((stem, "128/16"), (stem, "512/32"), (mobile, "128/32"), (mobile, "256/16")),
    *((score, "128/16"), (score, "512/32")),
]


@pytest.mark.parametrize(
    ("net", "name"), PAIRS if os.environ.get("RELAXD_GEOMETRIES") == "all" else SAMPLE
)
def test_small_nets_are_as_in_onnxruntime(net: Any, name: str) -> None:
    model, channels = net()
    feeds = [{"x": normal(n, channels, h, w)} for n, h, w in SHAPES]
    assert_like_onnxruntime(model, feeds, target=geometry(name), tolerance=1e-3)


@pytest.mark.parametrize("name", GEOMETRIES)
def test_short_images_are_as_in_onnxruntime(name: str) -> None:
    """Sounds of five, three, two positions and one, whose last tiles have few rows."""
    constants = {
        "w0": normal(40, 24, 3), "w1": normal(129, 40, 3), "w2": normal(20, 129, 3),
        "w3": normal(33, 20, 3), "b3": normal(33),
    }  # fmt: skip
    steps = {"kernel_shape": [3], "pads": [1, 1]}
    nodes = [
        helper.make_node("Conv", ["x", "w0"], ["a"], **steps),
        helper.make_node("Conv", ["a", "w1"], ["b"], strides=[2], **steps),
        helper.make_node("Conv", ["b", "w2"], ["c"], strides=[2], **steps),
        helper.make_node("Conv", ["c", "w3", "b3"], ["d"], strides=[2], **steps),
        helper.make_node("Relu", ["d"], ["y"]),
    ]
    scaled = {key: array * np.float32(0.1) for key, array in constants.items()}
    model = model_of(nodes, {"x": "float32[n,24,5]"}, scaled, outputs=["a", "b", "c", "y"])
    feeds = [{"x": normal(n, 24, 5)} for n in (1, 2, 3, 5, 7, 16)]
    assert_like_onnxruntime(model, feeds, target=geometry(name), tolerance=1e-3)


def graph_net(width: int) -> onnx.ModelProto:
    """Messages along edges: rows gathered, joined, weighed, and added up at one index each."""
    constants = {"w": normal(2 * width, width)}
    nodes = [
        helper.make_node("Gather", ["x", "from"], ["sources"], axis=0),
        helper.make_node("Gather", ["x", "to"], ["targets"], axis=0),
        helper.make_node("Concat", ["sources", "targets"], ["joined"], axis=1),
        helper.make_node("MatMul", ["joined", "w"], ["message"]),
        helper.make_node("Mul", ["sources", "message"], ["weighed"]),
        helper.make_node("Unsqueeze", ["to", "last"], ["index"]),
        helper.make_node("Shape", ["weighed"], ["shape"]),
        helper.make_node("Expand", ["index", "shape"], ["repeated"]),
        helper.make_node(
            "ScatterElements", ["x", "repeated", "weighed"], ["y"], axis=0, reduction="add"
        ),
    ]
    constants["last"] = np.array([1])
    inputs = {"x": f"float32[n,{width}]", "from": "int64[k]", "to": "int64[k]"}
    return model_of(nodes, inputs, constants, outputs=["joined", "y"])


@pytest.mark.parametrize("name", GEOMETRIES)
@pytest.mark.parametrize("width", [7, 32, 65])
def test_nets_on_graphs_are_as_in_onnxruntime(name: str, width: int) -> None:
    draw = np.random.default_rng(width)
    feeds = [
        {
            "x": normal(n, width) * np.float32(0.1),
            "from": draw.integers(-n, n, k),
            "to": draw.integers(-n, n, k),
        }
        for n, k in ((1, 1), (5, 0), (31, 33), (67, 1031))
    ]
    dims = {"n": (1, None), "k": (0, None)}
    target = geometry(name)
    assert_like_onnxruntime(graph_net(width), feeds, dims, target=target, tolerance=1e-3)


def shuffle_unit(channels: int, groups: int = 2) -> onnx.ModelProto:
    """A unit of ShuffleNet between convolutions: one half of the channels passes, the other is
    convolved, and their groups are shuffled.
    """
    half = groups * channels // 2
    constants = {
        "w0": normal(channels, 3, 3, 3), "w1": normal(half, half, 1, 1), "one": np.array([1]),
        "start": np.array([0]), "middle": np.array([half]), "end": np.array([2 * half]),
    }  # fmt: skip
    same: dict[str, Any] = {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}
    parts = [f"part{index}" for index in range(groups)]
    for index in range(groups):
        constants[f"v{index}"] = normal(channels, channels, 1, 1)
    nodes = [
        helper.make_node("Conv", ["x", "w0"], ["c"], **same),
        *(helper.make_node("Conv", ["c", f"v{i}"], [part]) for i, part in enumerate(parts)),
        helper.make_node("Concat", parts, ["joined"], axis=1),
        helper.make_node("Shape", ["x"], ["size"]),
        helper.make_node("Slice", ["size", "two", "four"], ["area"]),
        helper.make_node("Concat", ["all", "number", "each", "area"], ["grouped"], axis=0),
        helper.make_node("Concat", ["all", "total", "area"], ["whole"], axis=0),
        helper.make_node("Reshape", ["joined", "grouped"], ["groups"]),
        helper.make_node("Transpose", ["groups"], ["turned"], perm=[0, 2, 1, 3, 4]),
        helper.make_node("Reshape", ["turned", "whole"], ["shuffled"]),
        helper.make_node("Slice", ["shuffled", "start", "middle", "one"], ["passed"]),
        helper.make_node("Slice", ["shuffled", "middle", "end", "one"], ["taken"]),
        helper.make_node("Conv", ["taken", "w1"], ["y"]),
    ]
    constants |= {
        "two": np.array([2]), "four": np.array([4]), "all": np.array([0]),
        "number": np.array([groups]), "each": np.array([channels]),
        "total": np.array([groups * channels]),
    }  # fmt: skip
    outputs = ["passed", "taken", "y"]
    return model_of(nodes, {"x": "float32[n,3,h,w]"}, constants, outputs=outputs)


@pytest.mark.parametrize("name", GEOMETRIES)
@pytest.mark.parametrize(("channels", "groups"), [(58, 2), (7, 2), (6, 3), (10, 4)])
def test_shuffled_channels_are_as_in_onnxruntime(channels: int, groups: int, name: str) -> None:
    feeds = [{"x": normal(n, 3, h, w)} for n, h, w in SHAPES]
    model = shuffle_unit(channels, groups)
    assert_like_onnxruntime(model, feeds, target=geometry(name), tolerance=1e-3)

"""Pools in every geometry against ONNX Runtime."""

from typing import Any

import numpy as np
import pytest
from onnx import helper

from tests.compiler.ir.onnx.running import (
    assert_close,
    assert_like_onnxruntime,
    build,
    model_of,
    normal,
)

IMAGES = [{"x": normal(*shape)} for shape in ((1, 2, 5, 5), (2, 2, 7, 9), (3, 2, 13, 6))]
GEOMETRIES: list[dict[str, Any]] = [
    {"kernel_shape": [2, 2]},
    {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1]},
    {"kernel_shape": [3, 2], "strides": [2, 3], "ceil_mode": 1},
    {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1], "ceil_mode": 1},
    {"kernel_shape": [3, 3], "strides": [2, 2], "auto_pad": "SAME_UPPER"},
    {"kernel_shape": [2, 3], "strides": [2, 2], "auto_pad": "SAME_LOWER"},
    {"kernel_shape": [3, 3], "auto_pad": "VALID"},
    {"kernel_shape": [2, 2], "dilations": [2, 2]},
    {
        "kernel_shape": [2, 3],
        "dilations": [2, 1],
        "strides": [2, 1],
        "pads": [1, 0, 1, 1],
        "ceil_mode": 1,
    },
]


@pytest.mark.parametrize("op", ["MaxPool", "LpPool", "AveragePool"])
def test_geometries(op: str) -> None:
    nodes = [
        helper.make_node(op, ["x"], [f"y{index}"], **geometry)
        for index, geometry in enumerate(GEOMETRIES)
    ]
    if op == "AveragePool":
        nodes += [
            helper.make_node(op, ["x"], [f"counted{index}"], count_include_pad=1, **geometry)
            for index, geometry in enumerate(GEOMETRIES)
            if "pads" in geometry
        ]
    assert_like_onnxruntime(model_of(nodes, {"x": "float32[n,2,h,w]"}), IMAGES)


def test_indices_of_the_greatest() -> None:
    nodes = [
        helper.make_node("MaxPool", ["x"], [f"y{index}", f"i{index}"], **geometry)
        for index, geometry in enumerate(GEOMETRIES[1::3])
    ]
    nodes.append(
        helper.make_node(
            "MaxPool", ["x"], ["columns", "in_columns"], kernel_shape=[2, 2], storage_order=1
        )
    )
    assert_like_onnxruntime(model_of(nodes, {"x": "float32[n,2,h,w]"}), IMAGES)


def test_equals_give_the_first_index() -> None:
    built = build(
        model_of(
            [helper.make_node("MaxPool", ["x"], ["y", "i"], kernel_shape=[3])],
            {"x": "float32[1,1,l]"},
        )
    )
    assert built.run({"x": np.array([[[2, 5, 5, 1, 5]]], np.float32)})[1].tolist() == [[[1, 1, 2]]]


@pytest.mark.parametrize(
    ("axes", "kernel", "shapes"),
    [("l", [3], [(2, 3, 4), (1, 3, 17)]), ("d,h,w", [2, 3, 2], [(2, 3, 4, 5, 3), (1, 3, 2, 3, 2)])],
)
def test_other_ranks(axes: str, kernel: list[int], shapes: list[tuple[int, ...]]) -> None:
    nodes = [
        helper.make_node(op, ["x"], [op], kernel_shape=kernel) for op in ("MaxPool", "AveragePool")
    ]
    nodes += [
        helper.make_node(op, ["x"], [op])
        for op in ("GlobalMaxPool", "GlobalAveragePool", "GlobalLpPool")
    ]
    assert_like_onnxruntime(
        model_of(nodes, {"x": f"float32[n,3,{axes}]"}), [{"x": normal(*shape)} for shape in shapes]
    )


@pytest.mark.parametrize("dtype", ["uint8", "int8", "float64", "float16"])
def test_max_pool_of_other_types(dtype: str) -> None:
    x = (
        np.random.default_rng(0).random((1, 2, 6, 7)) * 100 - (0 if dtype == "uint8" else 50)
    ).astype(dtype)
    nodes = [helper.make_node("MaxPool", ["x"], ["y"], kernel_shape=[2, 2], pads=[1, 1, 1, 1])]
    built = build(model_of(nodes, {"x": f"{dtype}[n,2,h,w]"}))
    lowest = np.iinfo(dtype).min if np.dtype(dtype).kind in "iu" else -np.inf
    padded = np.pad(x, [(0, 0), (0, 0), (1, 1), (1, 1)], constant_values=lowest)
    wanted = np.lib.stride_tricks.sliding_window_view(padded, (2, 2), (2, 3)).max((-1, -2))
    assert_close(built.run({"x": x}), [wanted], ["y"], 0)


def test_unpooling_puts_elements_back() -> None:
    nodes = [
        helper.make_node("MaxPool", ["x"], ["y", "i"], kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("MaxUnpool", ["y", "i"], ["z"], kernel_shape=[2, 2], strides=[2, 2]),
    ]
    model = model_of(nodes, {"x": "float32[n,2,h,w]"}, outputs=["z"])
    assert_like_onnxruntime(
        model,
        [{"x": normal(*shape)} for shape in ((1, 2, 4, 6), (3, 2, 2, 2))],
        {"h": "2:64%2", "w": "2:64%2"},
    )

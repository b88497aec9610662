"""Searching, sorting and selecting, where the result's extents depend on the data."""

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

NODE = helper.make_node


@pytest.mark.parametrize(
    ("op", "last"), [("ArgMax", 0), ("ArgMax", 1), ("ArgMin", 0), ("ArgMin", 1)]
)
def test_arg_extremes(op: str, last: int) -> None:
    nodes = [
        NODE(op, ["x"], [f"y{axis}"], axis=axis, select_last_index=last, keepdims=axis % 2)
        for axis in (0, 1, -1)
    ]
    feeds = [{"x": np.round(normal(*shape))} for shape in ((3, 5, 2), (1, 1, 1), (7, 2, 11))]
    assert_like_onnxruntime(model_of(nodes, {"x": "float32[a,b,c]"}), feeds)


@pytest.mark.parametrize(("largest", "axis"), [(1, -1), (0, 0), (1, 1)])
def test_top_k(largest: int, axis: int) -> None:
    model = model_of(
        [NODE("TopK", ["x", "k"], ["v", "i"], largest=largest, axis=axis)],
        {"x": "float32[a,b,c]", "k": "int64[1]"},
    )
    feeds = [
        {"x": np.round(normal(*shape) * 2), "k": np.array([k])}
        for shape, k in (((3, 5, 4), 2), ((1, 1, 1), 1), ((7, 7, 7), 7), ((2, 3, 5), 0))
    ]
    assert_like_onnxruntime(model, feeds)


def test_top_k_of_many_against_numpy() -> None:
    x = np.random.default_rng(0).integers(0, 500, (2, 3001)).astype(np.float32)
    order = np.argsort(-x, axis=1, kind="stable")[:, :40]
    built = build(
        model_of(
            [NODE("TopK", ["x", "k"], ["v", "i"])], {"x": "float32[a,b]"}, {"k": np.array([40])}
        )
    )
    assert_close(built.run({"x": x}), [np.take_along_axis(x, order, 1), order], ["v", "i"], 0)


@pytest.mark.parametrize("attributes", [{}, {"sorted": 0}, {"axis": 0}, {"axis": 1, "sorted": 0}])
def test_unique(attributes: dict[str, Any]) -> None:
    model = model_of(
        [NODE("Unique", ["x"], ["y", "first", "inverse", "counts"], **attributes)],
        {"x": "float32[a,b]"},
    )
    feeds = [
        {"x": np.random.default_rng(1).integers(0, 3, shape).astype(np.float32)}
        for shape in ((5, 2), (1, 1), (2, 13), (11, 1))
    ]
    assert_like_onnxruntime(model, feeds)


def test_a_nan_is_one_element_and_comes_last() -> None:
    built = build(
        model_of([NODE("Unique", ["x"], ["y", "first", "inverse", "counts"])], {"x": "float32[a]"})
    )
    y, first, inverse, counts = built.run({"x": np.array([np.nan, 1, np.nan, 0], np.float32)})
    np.testing.assert_array_equal(y, np.array([0, 1, np.nan], np.float32))
    assert (first.tolist(), inverse.tolist(), counts.tolist()) == (
        [3, 1, 0],
        [2, 1, 2, 0],
        [1, 1, 2],
    )


def test_nonzero_and_what_follows_from_it() -> None:
    nodes = [
        NODE("NonZero", ["x"], ["places"]),
        NODE("Transpose", ["places"], ["rows"]),
        NODE("GatherND", ["x", "rows"], ["found"]),
    ]
    x = np.array([[0, 1, 0], [2, 0, 3]], np.float32)
    assert_like_onnxruntime(
        model_of(nodes, {"x": "float32[a,b]"}),
        [{"x": x}, {"x": np.zeros((2, 2), np.float32)}, {"x": normal(1, 7)}],
    )


@pytest.mark.parametrize("axis", [None, 0, 1])
def test_compress(axis: int | None) -> None:
    attributes = {} if axis is None else {"axis": axis}
    model = model_of(
        [NODE("Compress", ["x", "keep"], ["y"], **attributes)],
        {"x": "float32[a,b]", "keep": "bool[k]"},
    )
    feeds = [
        {"x": normal(3, 4), "keep": np.array(keep)}
        for keep in ([True, False, True], [False], [True, True])
    ]
    assert_like_onnxruntime(model, feeds)


def boxes_of(batch: int, count: int) -> np.ndarray:
    corners = np.random.default_rng(3).random((batch, count, 2, 2), np.float32)
    return np.concatenate([corners.min(2), corners.max(2) + 0.2], -1)


@pytest.mark.parametrize("centred", [0, 1])
def test_non_max_suppression(centred: int) -> None:
    node = NODE(
        "NonMaxSuppression",
        ["boxes", "scores", "most", "overlap", "least"],
        ["y"],
        center_point_box=centred,
    )
    inputs = {
        "boxes": "float32[n,k,4]",
        "scores": "float32[n,c,k]",
        "most": "int64[1]",
        "overlap": "float32[1]",
        "least": "float32[1]",
    }
    feeds = []
    for n, c, k, most in ((1, 1, 6, 3), (2, 3, 40, 10), (1, 2, 1, 5), (1, 1, 20, 0)):
        scores = np.random.default_rng(k).random((n, c, k), np.float32)
        limits = {"overlap": np.array([0.3], np.float32), "least": np.array([0.2], np.float32)}
        feeds.append(
            {"boxes": boxes_of(n, k), "scores": scores, "most": np.array([most]), **limits}
        )
    assert_like_onnxruntime(model_of([node], inputs), feeds)

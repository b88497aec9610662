"""Slice, Squeeze and Unsqueeze along axes that only run time knows."""

import numpy as np
import pytest
from onnx import helper

from compiler.errors import ImportFailed
from tests.compiler.ir.onnx.running import (
    assert_close,
    assert_like_onnxruntime,
    build,
    model_of,
    normal,
)

NODE = helper.make_node
BIG = (1 << 63) - 1


def test_slices() -> None:
    names = ["starts", "ends", "axes", "steps"]
    model = model_of(
        [NODE("Slice", ["x", *names], ["y"])],
        {"x": "float32[a,b,c]"} | dict.fromkeys(names, "int64[2]"),
    )
    rows = [
        ([0, 1], [2, 4], [0, 1], [1, 1]),
        ([1, -1], [BIG, -BIG], [-1, 0], [2, -1]),
        ([-1, 100], [0, -100], [2, 1], [-2, -3]),
        ([3, 0], [1, 1], [1, 2], [1, 5]),
        ([0, 0], [BIG, BIG], [1, 0], [BIG, 1]),
    ]
    feeds = [
        {"x": normal(*shape)}
        | {name: np.array(values) for name, values in zip(names, row, strict=True)}
        for shape in ((3, 5, 4), (1, 1, 1), (2, 7, 3))
        for row in rows
    ]
    assert_like_onnxruntime(model, feeds)


def test_a_step_of_unknown_sign() -> None:
    known = {"s": np.array([-1]), "e": np.array([0]), "a": np.array([0])}
    model = model_of(
        [NODE("Slice", ["x", "s", "e", "a", "step"], ["y"])],
        {"x": "float32[n]", "step": "int64[1]"},
        known,
    )
    assert_like_onnxruntime(
        model, [{"x": normal(7), "step": np.array([step])} for step in (1, -1, -3)]
    )


def test_squeeze_and_unsqueeze() -> None:
    nodes = [
        NODE("Unsqueeze", ["x", "axes"], ["wide"]),
        NODE("Squeeze", ["wide", "axes"], ["back"]),
    ]
    built = build(model_of(nodes, {"x": "float32[a,b]", "axes": "int64[2]"}))
    for shape, axes in (((3, 5), (0, 3)), ((1, 7), (-1, 1)), ((2, 0), (2, 0))):
        x = normal(*shape)
        assert_close(
            built.run({"x": x, "axes": np.array(axes)}),
            [np.expand_dims(x, axes), x],
            ["wide", "back"],
            0,
        )


@pytest.mark.parametrize("axes", [(0, 0), (0, 7)])
def test_axes_that_repeat_or_do_not_exist_are_errors(axes: tuple[int, int]) -> None:
    built = build(
        model_of(
            [NODE("Unsqueeze", ["x", "axes"], ["y"])], {"x": "float32[a,b]", "axes": "int64[2]"}
        )
    )
    with pytest.raises(RuntimeError, match="match_cast"):
        built.run({"x": normal(2, 3), "axes": np.array(axes)})


def test_squeeze_without_axes_of_an_extent_found_on_the_way() -> None:
    nodes = [NODE("Expand", ["x", "shape"], ["wide"]), NODE("Squeeze", ["wide"], ["y"])]
    model = model_of(nodes, {"x": "float32[1]", "shape": "int64[1]"}, outputs=["y"])
    built = assert_like_onnxruntime(
        model, [{"x": normal(1), "shape": np.array([count])} for count in (0, 2, 5)]
    )
    with pytest.raises(RuntimeError, match="match_cast"):
        built.run({"x": normal(1), "shape": np.array([1])})


def test_squeeze_without_axes_of_a_declared_dim_is_refused() -> None:
    with pytest.raises(ImportFailed, match="leaves the rank open") as caught:
        build(model_of([NODE("Squeeze", ["x"], ["y"])], {"x": "float32[n,1]"}))
    assert "--dim n=2:64" in str(caught.value.failure.hint)

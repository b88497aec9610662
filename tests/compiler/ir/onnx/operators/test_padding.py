"""Pad in every mode, by known and run-time amounts, against numpy and ONNX Runtime."""

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

AMOUNTS = np.array([0, 2, 1, 1, 0, 3])


@pytest.mark.parametrize("mode", ["constant", "reflect", "edge", "wrap"])
def test_modes(mode: str) -> None:
    model = model_of(
        [helper.make_node("Pad", ["x", "pads"], ["y"], mode=mode)],
        {"x": "float32[n,h,w]"},
        {"pads": AMOUNTS},
    )
    assert_like_onnxruntime(model, [{"x": normal(*shape)} for shape in ((2, 4, 5), (3, 7, 4))])


@pytest.mark.parametrize("mode", ["reflect", "wrap", "edge"])
def test_more_padding_than_elements(mode: str) -> None:
    built = build(
        model_of(
            [helper.make_node("Pad", ["x", "pads"], ["y"], mode=mode)],
            {"x": "float32[n]"},
            {"pads": np.array([7, 9])},
        )
    )
    for count in (1, 2, 3):
        x = normal(count)
        assert_close(built.run({"x": x}), [np.pad(x, (7, 9), mode=mode)], ["y"], 0)  # type: ignore[call-overload]


def test_run_time_amounts_and_fill() -> None:
    nodes = [
        helper.make_node("Pad", ["x", "pads", "fill"], ["y"]),
        helper.make_node("Pad", ["x", "pads"], ["z"], mode="reflect"),
    ]
    model = model_of(nodes, {"x": "float32[h,w]", "pads": "int64[4]", "fill": "float32[]"})
    feeds = [
        {"x": normal(h, 5), "pads": np.array(pads), "fill": np.array(-3.5, np.float32)}
        for h, pads in ((4, [1, 0, 2, 3]), (6, [0, 0, 0, 0]))
    ]
    assert_like_onnxruntime(model, feeds)


def test_run_time_axes() -> None:
    model = model_of(
        [helper.make_node("Pad", ["x", "pads", "", "axes"], ["y"])],
        {"x": "float32[h,w]", "pads": "int64[4]", "axes": "int64[2]"},
    )
    feeds = [
        {"x": normal(3, 4), "pads": np.array([1, 2, 3, 4]), "axes": np.array(axes)}
        for axes in ([0, 1], [1, 0], [-1, 0])
    ]
    assert_like_onnxruntime(model, feeds)


def test_negative_amounts_crop() -> None:
    model = model_of(
        [helper.make_node("Pad", ["x", "pads"], ["y"])],
        {"x": "float32[h,6]"},
        {"pads": np.array([-1, 2, 1, -3])},
    )
    assert_like_onnxruntime(model, [{"x": normal(h, 6)} for h in (1, 4)])


def test_attribute_form() -> None:
    node = helper.make_node("Pad", ["x"], ["y"], pads=[1, 0, 0, 2], value=1.5)
    assert_like_onnxruntime(
        model_of([node], {"x": "float32[h,w]"}, opset=9), [{"x": normal(2, 3)}, {"x": normal(0, 1)}]
    )


def test_refusals() -> None:
    with pytest.raises(ImportFailed, match="3 pads for 2 axes"):
        build(
            model_of(
                [helper.make_node("Pad", ["x", "pads"], ["y"])],
                {"x": "float32[h,w]"},
                {"pads": np.array([1, 2, 3])},
            )
        )
    with pytest.raises(ImportFailed, match="none of constant"):
        build(
            model_of(
                [helper.make_node("Pad", ["x", "pads"], ["y"], mode="odd")],
                {"x": "float32[h]"},
                {"pads": np.array([1, 2])},
            )
        )


def test_nothing_to_repeat_fails_at_run_time() -> None:
    built = build(
        model_of(
            [helper.make_node("Pad", ["x", "pads"], ["y"], mode="edge")],
            {"x": "float32[h]"},
            {"pads": np.array([1, 2])},
        )
    )
    with pytest.raises(RuntimeError):
        built.run({"x": normal(0)})

"""Normalisations and softmax against ONNX Runtime and numpy."""

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

IMAGES = [{"x": normal(*shape)} for shape in ((1, 4, 2, 1), (2, 4, 7, 9), (3, 4, 13, 1))]
CHANNELS = {
    "s": normal(4),
    "b": normal(4, seed=1),
    "m": normal(4, seed=2),
    "v": np.abs(normal(4, seed=3)),
}


def test_per_channel_and_neighbourhood() -> None:
    nodes = [
        helper.make_node("BatchNormalization", ["x", "s", "b", "m", "v"], ["batch"], epsilon=1e-3),
        helper.make_node("InstanceNormalization", ["x", "s", "b"], ["instance"]),
        helper.make_node("LRN", ["x"], ["lrn"], size=3, alpha=0.1, beta=0.5, bias=2.0),
        helper.make_node("LpNormalization", ["x"], ["lp1"], axis=1, p=1),
        helper.make_node("LpNormalization", ["x"], ["lp2"], axis=-1, p=2),
        helper.make_node("MeanVarianceNormalization", ["x"], ["mvn"]),
    ]
    assert_like_onnxruntime(model_of(nodes, {"x": "float32[n,4,h,w]"}, CHANNELS, opset=17), IMAGES)


def test_batch_norm_of_known_parameters_is_one_multiply_and_one_add() -> None:
    nodes = [helper.make_node("BatchNormalization", ["x", "s", "b", "m", "v"], ["y"])]
    text = (
        build(model_of(nodes, {"x": "float32[n,4,h,w]"}, CHANNELS)).imported.module["main"].script()
    )
    assert text.count("R.multiply") == 1
    assert text.count("R.add") == 1
    assert "R.sqrt" not in text


def test_batch_norm_in_training_gives_running_statistics() -> None:
    node = helper.make_node(
        "BatchNormalization",
        ["x", "s", "b", "m", "v"],
        ["y", "mean", "variance"],
        training_mode=1,
        momentum=0.8,
    )
    x = normal(3, 4, 5, 2)
    got = build(model_of([node], {"x": "float32[n,4,h,w]"}, CHANNELS)).run({"x": x})
    mean, variance = x.mean((0, 2, 3)), x.var((0, 2, 3))
    column = (1, 4, 1, 1)
    y = (x - mean.reshape(column)) / np.sqrt(variance.reshape(column) + 1e-5) * CHANNELS[
        "s"
    ].reshape(column) + CHANNELS["b"].reshape(column)
    assert_close(
        got,
        [y, CHANNELS["m"] * 0.8 + mean * 0.2, CHANNELS["v"] * 0.8 + variance * 0.2],
        ["y", "mean", "variance"],
    )


def test_layer_norm_with_and_without_statistics() -> None:
    nodes = [
        helper.make_node("LayerNormalization", ["x", "s", "b"], ["y"], axis=-1),
        helper.make_node("LayerNormalization", ["x", "s"], ["z"], axis=-1, epsilon=0.1),
        helper.make_node("LayerNormalization", ["x", "s", "b"], ["y1", "mean", "inverse"], axis=-1),
    ]
    model = model_of(nodes, {"x": "float32[n,t,4]"}, CHANNELS, opset=17)
    assert_like_onnxruntime(
        model, [{"x": normal(*shape)} for shape in ((1, 1, 4), (2, 7, 4), (0, 3, 4))]
    )


def test_layer_norm_over_dims() -> None:
    node = helper.make_node("LayerNormalization", ["x", "s", "b"], ["y"], axis=1)
    model = model_of(
        [node], {"x": "float32[n,h,w]", "s": "float32[h,w]", "b": "float32[h,w]"}, opset=17
    )
    assert_like_onnxruntime(
        model,
        [
            {"x": normal(2, h, w), "s": normal(h, w), "b": normal(h, w, seed=1)}
            for h, w in ((1, 2), (5, 7))
        ],
    )


def test_rms_and_group_norm() -> None:
    x, scale = normal(2, 4, 3, 5), normal(5)
    nodes = [
        helper.make_node("RMSNormalization", ["x", "last"], ["rms"], axis=-1, epsilon=1e-6),
        helper.make_node("GroupNormalization", ["x", "s", "b"], ["group"], num_groups=2),
    ]
    got = build(
        model_of(nodes, {"x": "float32[n,4,h,5]"}, {**CHANNELS, "last": scale}, opset=23)
    ).run({"x": x})
    grouped = x.reshape(2, 2, 2, 3, 5)
    centred = grouped - grouped.mean((2, 3, 4), keepdims=True)
    normalised = (centred / np.sqrt((centred**2).mean((2, 3, 4), keepdims=True) + 1e-5)).reshape(
        x.shape
    )
    group = normalised * CHANNELS["s"].reshape(1, 4, 1, 1) + CHANNELS["b"].reshape(1, 4, 1, 1)
    assert_close(
        got, [x / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-6) * scale, group], ["rms", "group"]
    )


@pytest.mark.parametrize("opset", [11, 13])
def test_softmax_family(opset: int) -> None:
    nodes = [
        helper.make_node(op, ["x"], [f"{op}{axis}"], axis=axis)
        for op in ("Softmax", "LogSoftmax", "Hardmax")
        for axis in (0, 1, 2, -1)
    ]
    assert_like_onnxruntime(model_of(nodes, {"x": "float32[n,4,h,w]"}, opset=opset), IMAGES)


def test_softmax_of_large_half_precision() -> None:
    x = (normal(3, 300) * 100).astype("float16")
    got = build(model_of([helper.make_node("Softmax", ["x"], ["y"])], {"x": "float16[n,t]"})).run(
        {"x": x}
    )
    wide = np.exp(x.astype("f8") - x.astype("f8").max(-1, keepdims=True))
    assert_close(got, [(wide / wide.sum(-1, keepdims=True)).astype("float16")], ["y"], 1e-3)


def test_dropout_passes_through() -> None:
    model = model_of(
        [helper.make_node("Dropout", ["x"], ["y", "mask"])], {"x": "float32[n,3]"}, opset=13
    )
    assert_like_onnxruntime(model, [{"x": normal(n, 3)} for n in (0, 1, 5)])

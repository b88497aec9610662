"""Float operators of ONNX Runtime's own domain beside ONNX Runtime at several shapes."""

from typing import Any

import numpy as np
import pytest

from compiler.errors import ImportFailed
from tests.compiler.ir.onnx.operators.test_quantized import one_node
from tests.compiler.ir.onnx.running import (
    assert_like_onnxruntime,
    build,
    normal,
)

FEEDS = [{"x": normal(n, m, 8), "s": normal(n, m, 8, seed=1)} for n, m in ((1, 1), (2, 5), (3, 1))]
VECTORS = {"g": normal(8), "o": normal(8, seed=1), "c": normal(8, seed=2)}
PAIR = {"x": "float32[n,m,8]", "s": "float32[n,m,8]"}


@pytest.mark.parametrize(
    ("op", "order"),
    [
        ("SkipLayerNormalization", "x s g o c"),
        ("SkipLayerNormalization", "x s g"),
        ("SkipSimplifiedLayerNormalization", "x s g c"),
        ("SkipSimplifiedLayerNormalization", "x s g"),
    ],
)
def test_normalisation_of_a_sum(op: str, order: str) -> None:
    used = {name: value for name, value in VECTORS.items() if name in order.split()}
    model = one_node(op, PAIR, used, order, outputs=["y", "", "", "total"], epsilon=1e-5)
    assert_like_onnxruntime(model, FEEDS)


def test_statistics_for_training_are_refused() -> None:
    model = one_node(
        "SkipLayerNormalization", PAIR, {"g": normal(8)}, "x s g", outputs=["y", "mean"]
    )
    with pytest.raises(ImportFailed, match="outputs for training"):
        build(model)


@pytest.mark.parametrize("op", ["LayerNormalization", "SimplifiedLayerNormalization"])
def test_normalisations_in_the_standard_domain(op: str) -> None:
    order = "x g o" if op == "LayerNormalization" else "x g"
    used = {name: value for name, value in VECTORS.items() if name in order.split()}
    model = one_node(
        op, {"x": "float32[n,m,8]"}, used, order, "", version=15, axis=-1, epsilon=1e-5
    )
    assert_like_onnxruntime(model, [{"x": feed["x"]} for feed in FEEDS])


@pytest.mark.parametrize(
    ("op", "order"),
    [
        ("Gelu", "x"),
        ("BiasGelu", "x c"),
        ("FastGelu", "x"),
        ("FastGelu", "x c"),
        ("QuickGelu", "x"),
    ],
)
def test_activations(op: str, order: str) -> None:
    model = one_node(
        op, {"x": "float32[n,m,8]"}, {"c": VECTORS["c"]} if "c" in order else {}, order
    )
    assert_like_onnxruntime(model, [{"x": feed["x"] * 3} for feed in FEEDS])


def test_embeddings_added_up_and_normalised() -> None:
    constants = {
        "word": normal(11, 8),
        "place": normal(6, 8),
        "segment": normal(2, 8),
        "g": VECTORS["g"],
        "o": VECTORS["o"],
    }
    inputs = {"ids": "int32[n,m]", "parts": "int32[n,m]", "mask": "int32[n,m]"}
    model = one_node(
        "EmbedLayerNormalization",
        inputs,
        constants,
        "ids parts word place segment g o mask",
        outputs=["y", "lengths"],
        epsilon=1e-5,
    )
    random = np.random.default_rng(0)
    feeds = [
        {"ids": random.integers(0, 11, s), "parts": random.integers(0, 2, s), "mask": np.ones(s)}
        for s in ((1, 1), (3, 5))
    ]
    assert_like_onnxruntime(
        model, [{name: array.astype(np.int32) for name, array in feed.items()} for feed in feeds]
    )


@pytest.mark.parametrize(
    ("left", "right", "attributes"),
    [
        ((2, 3, 4), (2, 4, 5), {"alpha": 0.5}),
        ((2, 4, 3), (2, 5, 4), {"transA": 1, "transB": 1}),
        ((3, 2, 4), (2, 4, 5), {"transBatchA": 1}),
        ((2, 3, 4), (4, 2, 5), {"transBatchB": 1}),
    ],
)
def test_fused_matmuls(
    left: tuple[int, ...], right: tuple[int, ...], attributes: dict[str, Any]
) -> None:
    model = one_node(
        "FusedMatMul", {"x": "float32[a,b,c]", "w": "float32[d,e,f]"}, {}, "x w", **attributes
    )
    assert_like_onnxruntime(model, [{"x": normal(*left), "w": normal(*right)}])


@pytest.mark.parametrize(
    ("activation", "alpha"), [("Relu", 0.0), ("LeakyRelu", 0.3), ("Tanh", 0.0)]
)
def test_fused_gemm(activation: str, alpha: float) -> None:
    constants = {"w": normal(8, 4), "c": normal(4)}
    model = one_node(
        "FusedGemm",
        {"x": "float32[n,8]"},
        constants,
        "x w c",
        activation=activation,
        activation_alpha=alpha,
        alpha=0.5,
    )
    assert_like_onnxruntime(model, [{"x": normal(n, 8)} for n in (1, 5)])


@pytest.mark.parametrize(
    ("activation", "parameters"), [("Relu", []), ("Clip", [-0.5, 0.5]), ("HardSigmoid", [0.2, 0.5])]
)
def test_fused_convolution(activation: str, parameters: list[float]) -> None:
    constants = {"w": normal(4, 3, 3, 3), "c": normal(4)}
    attributes: dict[str, Any] = {"activation": activation, "pads": [1, 1, 1, 1]} | (
        {"activation_params": parameters} if parameters else {}
    )
    model = one_node(
        "FusedConv",
        {"x": "float32[n,3,h,v]", "z": "float32[n,4,h,v]"},
        constants,
        "x w c z",
        **attributes,
    )
    assert_like_onnxruntime(
        model, [{"x": normal(n, 3, h, 5), "z": normal(n, 4, h, 5)} for n, h in ((1, 4), (2, 3))]
    )


def test_an_unknown_fused_activation_is_refused() -> None:
    model = one_node(
        "FusedGemm", {"x": "float32[n,8]"}, {"w": normal(8, 4)}, "x w", activation="Sine"
    )
    with pytest.raises(ImportFailed, match="'Sine' is not supported"):
        build(model)

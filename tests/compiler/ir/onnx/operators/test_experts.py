"""Mixtures of experts beside ONNX Runtime."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

from compiler.errors import ImportFailed
from tests.compiler.ir.onnx.running import (
    assert_like_onnxruntime,
    build,
    model_of,
    normal,
    session_of,
)

EXPERTS, HIDDEN, INNER = 6, 32, 48
FLOATS = ("x", "r", "w1", "b1", "w2", "b2", "w3", "b3")
PACKED = (
    "x", "r", "w1", "s1", "b1", "w2", "s2", "b2", "w3", "s3", "b3", "z1", "z2", "z3", "rw",
)  # fmt: skip
SWIGLU: dict[str, Any] = {"activation_type": "swiglu", "swiglu_fusion": 1}
TOKENS = {"x": f"float32[t,{HIDDEN}]", "r": f"float32[t,{EXPERTS}]"}
Constants = dict[str, np.ndarray]


def mixture(
    op: str, inputs: Mapping[str, str], constants: Constants, **attributes: Any
) -> onnx.ModelProto:
    names = {*inputs, *constants}
    order = [name if name in names else "" for name in (FLOATS if op == "MoE" else PACKED)]
    while not order[-1]:
        order.pop()
    node = helper.make_node(op, order, ["y"], domain="com.microsoft", **attributes)
    model = model_of([node], inputs, constants)
    model.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    return model


def floats(parts: int = 1, inner: int = INNER, biased: bool = True) -> Constants:
    constants = {
        "w1": normal(EXPERTS, parts * inner, HIDDEN) * 0.3,
        "w2": normal(EXPERTS, HIDDEN, inner, seed=1) * 0.3,
    }
    if biased:
        constants |= {"b1": normal(EXPERTS, parts * inner), "b2": normal(EXPERTS, HIDDEN, seed=1)}
    return constants


def pack_weights(
    bits: int, block: int, zeros: bool, parts: int = 2, inner: int = INNER
) -> Constants:
    random, constants = np.random.default_rng(bits), {}
    for layer, rows, depth in ((1, parts * inner, HIDDEN), (2, HIDDEN, inner)):
        blocks = [depth // block] if block else []
        last = depth // block if block else rows
        stored = -(-last * bits // 8)
        points = (EXPERTS, rows, stored) if block else (EXPERTS, stored)
        constants |= {
            f"w{layer}": random.integers(0, 256, (EXPERTS, rows, depth * bits // 8), np.uint8),
            f"s{layer}": normal(EXPERTS, rows, *blocks) * 0.5 / (1 << bits),
            f"b{layer}": normal(EXPERTS, rows, seed=layer),
        }
        if zeros:
            constants[f"z{layer}"] = random.integers(0, 256, points, np.uint8)
    return constants


def feeds(*counts: int, more: Sequence[str] = ()) -> list[dict[str, np.ndarray]]:
    return [
        {
            "x": normal(count, HIDDEN),
            "r": normal(count, EXPERTS),
            **{name: normal(count, EXPERTS, seed=7) for name in more},
        }
        for count in counts
    ]


@pytest.mark.parametrize("name", ["relu", "gelu", "silu", "identity"])
@pytest.mark.parametrize("k", [1, 3])
def test_activations_at_any_number_of_tokens(name: str, k: int) -> None:
    model = mixture("MoE", TOKENS, floats(), activation_type=name, k=k)
    assert_like_onnxruntime(model, feeds(1, 2, 7, 17, 0))


@pytest.mark.parametrize(
    "form", [{}, {"activation_alpha": 1.702, "activation_beta": 1.0, "swiglu_limit": 0.7}]
)
@pytest.mark.parametrize("normalised", [0, 1])
def test_gates(form: dict[str, Any], normalised: int) -> None:
    model = mixture(
        "MoE", TOKENS, floats(2), k=2, normalize_routing_weights=normalised, **SWIGLU, **form
    )
    assert_like_onnxruntime(model, feeds(1, 2, 7, 17, 0))


def test_all_experts_without_a_bias_and_part_of_a_panel() -> None:
    model = mixture("MoE", TOKENS, floats(2, 20, biased=False), k=EXPERTS, **SWIGLU)
    assert_like_onnxruntime(model, feeds(1, 5))


def test_a_batch_of_sequences() -> None:
    inputs = {"x": f"float32[b,s,{HIDDEN}]", "r": f"float32[b * s,{EXPERTS}]"}
    model = mixture("MoE", inputs, floats(2), k=2, **SWIGLU)
    cases = [
        {"x": normal(b, s, HIDDEN), "r": normal(b * s, EXPERTS)}
        for b, s in ((1, 1), (3, 5), (2, 0))
    ]
    assert_like_onnxruntime(model, cases)


@pytest.mark.parametrize("rows", [1, 4])
def test_a_fixed_number_of_tokens(rows: int) -> None:
    inputs = {"x": f"float32[{rows},{HIDDEN}]", "r": f"float32[{rows},{EXPERTS}]"}
    assert_like_onnxruntime(mixture("MoE", inputs, floats(), k=2), feeds(rows))


def test_float16() -> None:
    inputs = {"x": f"float16[t,{HIDDEN}]", "r": f"float16[t,{EXPERTS}]"}
    constants = {name: array.astype(np.float16) for name, array in floats(2).items()}
    model = mixture("MoE", inputs, constants, k=2, normalize_routing_weights=1, **SWIGLU)
    cases = [{name: array.astype(np.float16) for name, array in feeds(5)[0].items()}]
    assert_like_onnxruntime(model, cases, tolerance=2e-2)


SCORES = np.array(
    [
        [0, 0, 0, 0, 0, 0],
        [1, 2, 2, 2, 0, 0],
        [0, 0, 0, 0, 5, 5],
        [3, 1, 1, 1, 1, 3],
        [-np.inf, -np.inf, 0, -np.inf, -np.inf, 1],
        [-np.inf, -np.inf, -np.inf, -np.inf, -np.inf, 1],
        [-np.inf, -np.inf, -np.inf, -np.inf, -np.inf, -np.inf],
        [900, 900, -900, 0, 0, 0],
        [0, np.nan, 0, 0, 1, 0],
    ],
    np.float32,
)


@pytest.mark.parametrize("op", ["MoE", "QMoE"])
@pytest.mark.parametrize("normalised", [0, 1])
def test_equal_infinite_and_undefined_scores(op: str, normalised: int) -> None:
    constants = floats(2) if op == "MoE" else pack_weights(4, 0, False)
    model = mixture(op, TOKENS, constants, k=2, normalize_routing_weights=normalised, **SWIGLU)
    assert_like_onnxruntime(model, [{"x": normal(len(SCORES), HIDDEN), "r": SCORES}])


@pytest.mark.parametrize("bits", [2, 4, 8])
@pytest.mark.parametrize("zeros", [False, True])
@pytest.mark.parametrize("block", [0, 16])
def test_packed_weights(bits: int, zeros: bool, block: int) -> None:
    constants = pack_weights(bits, block, zeros)
    attributes = {"block_size": block} if block else {}
    model = mixture("QMoE", TOKENS, constants, k=2, expert_weight_bits=bits, **SWIGLU, **attributes)
    if bits == 8 and block:
        check_near_onnxruntime(model)
    else:
        built = assert_like_onnxruntime(model, feeds(1, 2, 7, 17, 0))
        assert not built.imported.quantized


def test_four_bits_that_onnxruntime_rounds() -> None:
    model = mixture(
        "QMoE", TOKENS, pack_weights(4, 16, True), k=2, block_size=16, accuracy_level=4, **SWIGLU
    )
    check_near_onnxruntime(model)


def check_near_onnxruntime(model: onnx.ModelProto) -> None:
    built, session = build(model), session_of(model)
    assert built.imported.quantized
    for feed in feeds(1, 7):
        (got,), (want,) = built.run(feed), session.run(None, feed)
        assert np.linalg.norm(got - want) < 0.03 * np.linalg.norm(want)


def test_packed_weights_without_gates_and_parts_of_panels() -> None:
    constants = pack_weights(4, 0, True, parts=1, inner=20)
    model = mixture("QMoE", TOKENS, constants, k=3, activation_type="silu", weights_prepacked=0)
    assert_like_onnxruntime(model, feeds(1, 6))


@pytest.mark.parametrize("normalised", [0, 1])
@pytest.mark.parametrize("k", [1, 3])
def test_weights_apart_from_the_scores(normalised: int, k: int) -> None:
    inputs = {**TOKENS, "rw": f"float32[t,{EXPERTS}]"}
    model = mixture(
        "QMoE", inputs, pack_weights(4, 16, False), k=k, block_size=16,
        normalize_routing_weights=normalised, **SWIGLU,
    )  # fmt: skip
    cases = feeds(1, 9, more=["rw"])
    cases[0]["rw"][:] = 0
    assert_like_onnxruntime(model, cases)


REFUSED: dict[str, tuple[str, dict[str, Any], str]] = {
    "activation": ("MoE", {"activation_type": "tanh"}, "'tanh' is not supported"),
    "apart": ("MoE", {"activation_type": "swiglu"}, "swiglu_fusion=0"),
    "concatenated": ("QMoE", {**SWIGLU, "swiglu_fusion": 2}, "swiglu_fusion=2"),
    "fused": ("MoE", {"swiglu_fusion": 1}, "swiglu_fusion=1"),
    "mixer": ("MoE", {**SWIGLU, "use_sparse_mixer": 1}, "sparse mixer"),
    "k": ("MoE", {**SWIGLU, "k": EXPERTS + 1}, "k is 7, of 6 experts"),
    "fp4": ("QMoE", {**SWIGLU, "quant_type": "fp4"}, "type fp4"),
    "gpu": ("QMoE", {**SWIGLU, "weights_prepacked": 1}, "one GPU"),
    "bits": ("QMoE", {**SWIGLU, "fc2_expert_weight_bits": 8}, "4, 4, 8, 4 bits"),
    "blocks": ("QMoE", {**SWIGLU, "block_size": 64}, "do not divide a depth"),
    "shape": ("QMoE", {**SWIGLU, "block_size": 16}, "has the shape"),
    "rows": ("MoE", {"activation_type": "silu"}, "has the shape"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_forms_that_are_refused(name: str) -> None:
    op, attributes, message = REFUSED[name]
    constants = floats(2) if op == "MoE" else pack_weights(4, 0, False)
    with pytest.raises(ImportFailed, match=message):
        build(mixture(op, TOKENS, constants, **attributes))


@pytest.mark.parametrize(
    ("op", "more", "message"),
    [
        ("MoE", {"w3": "float32"}, "third layer"),
        ("QMoE", {"w3": "uint8"}, "third layer"),
    ],
)
def test_a_third_layer_is_refused(op: str, more: dict[str, str], message: str) -> None:
    constants = floats(2) if op == "MoE" else pack_weights(4, 0, False)
    extra = {name: np.zeros((EXPERTS, INNER, HIDDEN), dtype) for name, dtype in more.items()}
    with pytest.raises(ImportFailed, match=message):
        build(mixture(op, TOKENS, constants | extra, **SWIGLU))


def test_weights_that_are_computed_are_refused() -> None:
    constants = floats()
    inputs = {**TOKENS, "w1": f"float32[{EXPERTS},{INNER},{HIDDEN}]"}
    del constants["w1"]
    with pytest.raises(ImportFailed, match="must be a constant"):
        build(mixture("MoE", inputs, constants))

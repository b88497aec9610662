"""States that go from token to token, in ONNX Runtime's own domain, beside ONNX Runtime."""

from typing import Any

import numpy as np
import pytest

from compiler.errors import ImportFailed
from tests.compiler.ir.onnx.operators.test_quantized import one_node
from tests.compiler.ir.onnx.running import Arrays, assert_like_onnxruntime, build, normal

CHANNELS, TAPS = 6, 4
WEIGHTS = {"w": normal(CHANNELS, 1, TAPS), "c": normal(CHANNELS, seed=1)}
SIZES = ((1, 1), (2, 3), (1, 17), (3, 2))


def conv(inputs: dict[str, str], order: str, **attributes: Any) -> Any:
    used = {name: value for name, value in WEIGHTS.items() if name in order.split()}
    return one_node(
        "CausalConvWithState", inputs, used, order, outputs=["y", "state"], **attributes
    )


@pytest.mark.parametrize("order", ["x w c p", "x w - p", "x w c"])
@pytest.mark.parametrize("activation", ["none", "silu"])
def test_a_causal_convolution_takes_and_gives_its_last_inputs(order: str, activation: str) -> None:
    inputs = {"x": f"float32[n,{CHANNELS},s]", "p": f"float32[n,{CHANNELS},{TAPS - 1}]"}
    inputs = {name: spec for name, spec in inputs.items() if name in order.split()}
    feeds = [
        {"x": normal(n, CHANNELS, s), "p": normal(n, CHANNELS, TAPS - 1, seed=2)} for n, s in SIZES
    ]
    cases = [{name: feed[name] for name in inputs} for feed in feeds]
    assert_like_onnxruntime(conv(inputs, order, activation=activation), cases)


@pytest.mark.parametrize("dilation", [2, 3])
def test_taps_of_a_causal_convolution_apart(dilation: int) -> None:
    before = (TAPS - 1) * dilation
    inputs = {"x": f"float32[n,{CHANNELS},s]", "p": f"float32[n,{CHANNELS},{before}]"}
    feeds = [
        {"x": normal(n, CHANNELS, s), "p": normal(n, CHANNELS, before, seed=2)} for n, s in SIZES
    ]
    assert_like_onnxruntime(conv(inputs, "x w c p", dilation=dilation), feeds)


@pytest.mark.parametrize("parts", [(CHANNELS,), (2, CHANNELS // 2)])
def test_channels_of_a_causal_convolution_last(parts: tuple[int, ...]) -> None:
    last = ",".join(map(str, parts))
    inputs = {"x": f"float32[n,s,{last}]", "p": f"float32[n,{TAPS - 1},{last}]"}
    feeds = [
        {"x": normal(n, s, *parts), "p": normal(n, TAPS - 1, *parts, seed=2)} for n, s in SIZES
    ]
    assert_like_onnxruntime(conv(inputs, "x w c p", channels_last=1), feeds)


@pytest.mark.parametrize(
    ("attributes", "match"),
    [
        ({"state_window": 2}, "states of several tokens"),
        ({"ndim": 2}, "one axis of tokens"),
        ({"activation": "tanh"}, "the activation 'tanh'"),
    ],
)
def test_forms_of_causal_convolutions_that_are_refused(
    attributes: dict[str, Any], match: str
) -> None:
    with pytest.raises(ImportFailed, match=match):
        build(conv({"x": f"float32[n,{CHANNELS},s]"}, "x w c", **attributes))


def unit(array: Any) -> Any:
    return array / np.linalg.norm(array, axis=-1, keepdims=True)


def attention(
    rule: str, heads: int, groups: int, wide: bool, past: bool
) -> tuple[dict[str, str], str, list[Arrays]]:
    """Inputs, their order, and feeds: keys of length one, decays below zero, rates below one."""
    depth, width = 4, 3
    decays = groups * (depth if wide else 1)
    inputs = {
        "q": f"float32[n,s,{heads * depth}]",
        "k": f"float32[n,s,{groups * depth}]",
        "v": f"float32[n,s,{groups * width}]",
    }
    feeds: list[Arrays] = []
    for n, s in SIZES:
        keys = unit(normal(n, s, groups, depth, seed=1)).reshape(n, s, -1)
        feeds.append(
            {
                "q": normal(n, s, heads * depth),
                "k": keys.astype("float32"),
                "v": normal(n, s, groups * width, seed=2),
                "p": normal(n, groups, depth, width, seed=3),
                "g": -np.abs(normal(n, s, decays, seed=4)),
                "b": 1 / (1 + np.exp(normal(n, s, groups, seed=5))),
            }
        )
    if past:
        inputs["p"] = f"float32[n,{groups},{depth},{width}]"
    if "gated" in rule:
        inputs["g"] = f"float32[n,s,{decays}]"
    if "delta" in rule:
        inputs["b"] = f"float32[n,s,{groups}]"
    order = " ".join(name if name in inputs else "-" for name in "qkvpgb").rstrip(" -")
    return inputs, order, [{name: feed[name] for name in inputs} for feed in feeds]


@pytest.mark.parametrize(
    ("rule", "heads", "groups", "wide", "past"),
    [
        ("linear", 2, 2, False, False),
        ("gated", 4, 2, True, True),
        ("delta", 2, 2, False, True),
        ("gated_delta", 4, 2, False, True),
        ("gated_delta", 2, 2, False, False),
        ("gated_delta", 2, 6, False, True),
    ],
)
def test_linear_attention_by_every_rule(
    rule: str, heads: int, groups: int, wide: bool, past: bool
) -> None:
    inputs, order, feeds = attention(rule, heads, groups, wide, past)
    model = one_node(
        "LinearAttention",
        inputs,
        {},
        order,
        outputs=["y", "state"],
        q_num_heads=heads,
        kv_num_heads=groups,
        update_rule=rule,
        chunk_size=16,
    )
    assert_like_onnxruntime(model, feeds)


def test_linear_attention_of_heads_that_do_not_share_is_refused() -> None:
    inputs, order, _ = attention("linear", 3, 2, False, False)
    model = one_node(
        "LinearAttention", inputs, {}, order, q_num_heads=3, kv_num_heads=2, update_rule="linear"
    )
    with pytest.raises(ImportFailed, match="3 query heads do not share 2 heads of keys"):
        build(model)

"""Attention and MultiHeadAttention of ONNX Runtime's own domain beside ONNX Runtime at several
shapes.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

from compiler.errors import ImportFailed
from tests.compiler.ir.onnx.operators.test_quantized import MICROSOFT, one_node
from tests.compiler.ir.onnx.running import (
    Arrays,
    assert_close,
    assert_like_onnxruntime,
    build,
    model_of,
    normal,
)

QKV = {"q": "float32[n,s,8]", "k": "float32[n,t,8]", "v": "float32[n,t,8]"}
SELF = {"q": "float32[n,s,8]", "k": "float32[n,s,8]", "v": "float32[n,s,8]"}
PAST = {"pk": "float32[n,2,p,4]", "pv": "float32[n,2,p,4]"}
WEIGHTS = {"w": normal(6, 24), "b": normal(24)}
LENGTHS = ((1, 1, 1), (2, 3, 5), (3, 7, 2))


def attentions(
    op: str,
    inputs: Mapping[str, str],
    constants: Arrays,
    order: str,
    forms: Sequence[Mapping[str, Any]],
    outputs: int = 1,
) -> onnx.ModelProto:
    """A node for each of the forms, all of the same inputs; `-` stands for one that is omitted."""
    names = ["" if name == "-" else name for name in order.split()]
    nodes = [
        helper.make_node(
            op,
            names,
            [f"y{form}_{index}" for index in range(outputs)],
            domain=MICROSOFT,
            **{"num_heads": 2, **attributes},
        )
        for form, attributes in enumerate(forms)
    ]
    model = model_of(nodes, inputs, constants)
    model.opset_import.append(helper.make_opsetid(MICROSOFT, 1))
    return model


def qkv(n: int, s: int, t: int) -> dict[str, np.ndarray]:
    return {"q": normal(n, s, 8), "k": normal(n, t, 8, seed=1), "v": normal(n, t, 8, seed=2)}


def past(n: int, p: int) -> dict[str, np.ndarray]:
    return {"pk": normal(n, 2, p, 4, seed=3), "pv": normal(n, 2, p, 4, seed=4)}


def padding_mask(n: int, t: int, left: bool) -> np.ndarray:
    """Ones but for half of the last entry, and all of the first where there are three."""
    mask = np.ones((n, t), np.int32)
    mask[-1, slice(0, t // 2) if left else slice(t // 2, t)] = 0
    mask[: n - 2] = 0
    return mask


def test_keys_of_another_length_with_a_bias() -> None:
    model = attentions(
        "MultiHeadAttention",
        QKV,
        {"b": normal(24)},
        "q k v b",
        [{}, {"num_heads": 4, "scale": 0.3}],
    )
    assert_like_onnxruntime(model, [qkv(*lengths) for lengths in LENGTHS])


def test_masks_of_keys() -> None:
    feeds = [
        {**qkv(n, s, t), "m": padding_mask(n, t, left)}
        for n, s, t in LENGTHS
        for left in (True, False)
    ]
    forms = [{}, {"mask_filter_value": -1.0}]
    assert_like_onnxruntime(
        attentions("MultiHeadAttention", {**QKV, "m": "int32[n,t]"}, {}, "q k v - m", forms), feeds
    )


def test_lengths_of_keys() -> None:
    feeds = [
        {**qkv(n, s, t), "m": np.array([max(t - i, 0) for i in range(n)], np.int32)}
        for n, s, t in LENGTHS
    ]
    assert_like_onnxruntime(
        attentions("MultiHeadAttention", {**QKV, "m": "int32[n]"}, {}, "q k v - m", [{}]), feeds
    )


@pytest.mark.parametrize("rank", [2, 3])
def test_a_past_with_masks_and_scores_that_are_added(rank: int) -> None:
    inputs = {
        **SELF,
        **PAST,
        "m": "int32[n,a]" if rank == 2 else "int32[n,s,a]",
        "e": "float32[c,h,s,a]",
    }
    model = attentions(
        "MultiHeadAttention",
        inputs,
        {},
        "q k v - m e pk pv",
        [{}, {"unidirectional": 1}],
        outputs=3,
    )
    feeds = []
    for n, s, p, c, h in ((1, 1, 1, 1, 2), (2, 1, 5, 2, 1), (2, 3, 4, 1, 1), (2, 3, 4, 2, 2)):
        mask = padding_mask(n, p + s, True)
        mask = mask if rank == 2 else np.repeat(mask[:, None], s, 1)
        feeds.append({**qkv(n, s, s), **past(n, p), "m": mask, "e": normal(c, h, s, p + s)})
    assert_like_onnxruntime(model, feeds)


def test_looking_back_beside_a_left_padding() -> None:
    model = attentions(
        "MultiHeadAttention", {**SELF, "m": "int32[n,s]"}, {}, "q k v - m", [{"unidirectional": 1}]
    )
    assert_like_onnxruntime(
        model,
        [{**qkv(n, s, s), "m": padding_mask(n, s, True)} for n, s in ((1, 1), (2, 5), (3, 4))],
    )


def test_keys_and_values_that_come_as_heads() -> None:
    inputs = {"q": "float32[n,s,8]", "k": "float32[n,2,t,4]", "v": "float32[n,2,t,4]"}
    feeds = [
        {"q": normal(n, s, 8), "k": normal(n, 2, t, 4), "v": normal(n, 2, t, 4, seed=1)}
        for n, s, t in LENGTHS
    ]
    assert_like_onnxruntime(
        attentions("MultiHeadAttention", inputs, {"b": normal(24)}, "q k v b", [{}]), feeds
    )


def test_packed_inputs_are_their_parts() -> None:
    inputs = {
        "all": "float32[n,s,2,3,4]",
        "q": "float32[n,s,8]",
        "kv": "float32[n,s,2,2,4]",
        "k": "float32[n,s,8]",
        "v": "float32[n,s,8]",
    }
    nodes = [
        helper.make_node(
            "MultiHeadAttention", names.split(), [output], domain=MICROSOFT, num_heads=2
        )
        for names, output in (("all", "packed"), ("q kv", "half"), ("q k v", "apart"))
    ]
    model = model_of(nodes, inputs)
    model.opset_import.append(helper.make_opsetid(MICROSOFT, 1))
    built = build(model)
    for n, s in ((1, 1), (2, 5)):
        joint = normal(n, s, 2, 3, 4)
        q, k, v = (np.ascontiguousarray(joint[:, :, :, i]).reshape(n, s, 8) for i in range(3))
        packed, half, apart = built.run(
            {"all": joint, "kv": joint[:, :, :, 1:], "q": q, "k": k, "v": v}
        )
        assert_close([packed, half], [apart, apart], ["packed", "half"])


def test_looking_back_needs_as_many_queries_as_keys() -> None:
    built = build(attentions("MultiHeadAttention", QKV, {}, "q k v", [{"unidirectional": 1}]))
    with pytest.raises(RuntimeError, match="match_cast"):
        built.run(qkv(2, 3, 5))


@pytest.mark.parametrize("unidirectional", [0, 1])
def test_attention_of_projected_inputs(unidirectional: int) -> None:
    forms: list[dict[str, Any]] = [
        {"unidirectional": unidirectional},
        {"unidirectional": unidirectional, "num_heads": 4, "scale": 0.7},
    ]
    model = attentions(
        "Attention", {"x": "float32[n,s,6]", "m": "int32[n,s]"}, WEIGHTS, "x w b m", forms
    )
    feeds = [
        {"x": normal(n, s, 6), "m": padding_mask(n, s, left)}
        for n, s in ((1, 1), (2, 5), (3, 4))
        for left in (True, False)
    ]
    assert_like_onnxruntime(model, feeds)


def test_attention_with_a_past() -> None:
    inputs = {"x": "float32[n,s,6]", "m": "int32[n,a]", "p": "float32[2,n,2,p,4]"}
    forms = [{}, {"unidirectional": 1, "mask_filter_value": -5000.0}]
    model = attentions("Attention", inputs, WEIGHTS, "x w b m p", forms, outputs=2)
    sizes = ((1, 1, 1), (2, 5, 3), (3, 1, 4), (2, 3, 0))
    assert_like_onnxruntime(
        model,
        [
            {"x": normal(n, s, 6), "m": padding_mask(n, p + s, True), "p": normal(2, n, 2, p, 4)}
            for n, s, p in sizes
        ],
    )


def test_attention_with_values_of_another_width_and_other_masks() -> None:
    constants = {"w": normal(6, 28), "b": normal(28)}
    sizes = ((1, 1), (2, 5), (3, 4))
    per_row = attentions(
        "Attention",
        {"x": "float32[n,s,6]", "m": "int32[n,s,s]"},
        constants,
        "x w b m",
        [{"qkv_hidden_sizes": [8, 8, 12]}],
    )
    assert_like_onnxruntime(
        per_row,
        [{"x": normal(n, s, 6), "m": (normal(n, s, s) > 0).astype(np.int32)} for n, s in sizes],
    )
    lengths = attentions(
        "Attention",
        {"x": "float32[n,s,6]", "m": "int32[n]"},
        WEIGHTS,
        "x w b m",
        [{"unidirectional": 1}],
    )
    feeds = [
        {"x": normal(n, s, 6), "m": np.array([max(s - 2 * i, 0) for i in range(n)], np.int32)}
        for n, s in sizes
    ]
    assert_like_onnxruntime(lengths, feeds)


@pytest.mark.parametrize(
    ("order", "extra", "attributes", "message"),
    [
        ("q k v - - - - - - c", {"c": "int32[n,1,t]"}, {}, "input 9 is not supported"),
        ("q k v", {}, {"do_rotary": 1}, "attribute do_rotary is not supported"),
        ("q k v - m", {"m": "int32[n,1,t,t]"}, {}, "masks of this rank"),
        ("q k v - - - p", {"p": "float32[n,2,t,4]"}, {}, "go together"),
        ("q k p", {"p": "float32[n,2,t,4]"}, {}, "ranks .3, 3, 4. are not supported"),
    ],
)
def test_what_is_refused(
    order: str, extra: dict[str, str], attributes: dict[str, Any], message: str
) -> None:
    with pytest.raises(ImportFailed, match=message):
        build(
            one_node("MultiHeadAttention", {**QKV, **extra}, {}, order, num_heads=2, **attributes)
        )

"""Attention of the standard domain beside ONNX Runtime: heads and rows, masks, a past, lengths, at
several shapes.
"""

import numpy as np
import pytest
from onnx import TensorProto, helper

from tests.compiler.ir.onnx.running import assert_like_onnxruntime, build, model_of, normal

HEADS = {"q": "float32[n,4,s,8]", "k": "float32[n,2,t,8]", "v": "float32[n,2,t,8]"}
ROWS = {"q": "float32[n,s,32]", "k": "float32[n,t,16]", "v": "float32[n,t,16]"}
PAST = {"pk": "float32[n,2,p,8]", "pv": "float32[n,2,p,8]"}
LENGTHS = ((1, 1, 1), (2, 3, 5), (3, 7, 2), (2, 4, 4))

Feed = dict[str, np.ndarray]


def heads(n: int, s: int, t: int) -> Feed:
    return {
        "q": normal(n, 4, s, 8),
        "k": normal(n, 2, t, 8, seed=1),
        "v": normal(n, 2, t, 8, seed=2),
    }


def rows(n: int, s: int, t: int) -> Feed:
    return {"q": normal(n, s, 32), "k": normal(n, t, 16, seed=1), "v": normal(n, t, 16, seed=2)}


def past(n: int, p: int) -> Feed:
    return {"pk": normal(n, 2, p, 8, seed=3), "pv": normal(n, 2, p, 8, seed=4)}


def check(
    inputs: dict[str, str],
    order: str,
    feeds: list[Feed],
    opset: int = 23,
    outputs: int = 1,
    **attributes: float,
) -> None:
    """One model with a node that looks everywhere and one that looks back."""
    names = ["" if name == "-" else name for name in order.split()]
    nodes = [
        helper.make_node(
            "Attention",
            names,
            [f"y{causal}_{i}" for i in range(outputs)],
            is_causal=causal,
            **attributes,
        )
        for causal in (0, 1)
    ]
    assert_like_onnxruntime(model_of(nodes, inputs, opset=opset), feeds)


@pytest.mark.parametrize("opset", [23, 24])
def test_heads_that_are_shared(opset: int) -> None:
    check(HEADS, "q k v", [heads(*lengths) for lengths in LENGTHS], opset)


def test_rows_with_a_cap_and_a_scale() -> None:
    check(
        ROWS,
        "q k v",
        [rows(*lengths) for lengths in LENGTHS],
        softcap=1.5,
        scale=0.4,
        q_num_heads=4,
        kv_num_heads=2,
    )


@pytest.mark.parametrize("opset", [23, 24])
def test_a_past_and_a_mask(opset: int) -> None:
    sizes = ((1, 1, 1, 1), (2, 1, 1, 5), (2, 3, 3, 4))
    feeds = [{**rows(n, s, t), **past(n, p), "m": normal(s, p + t)} for n, s, t, p in sizes]
    check(
        {**ROWS, **PAST, "m": "float32[s,a]"},
        "q k v m pk pv",
        feeds,
        opset,
        3,
        q_num_heads=4,
        kv_num_heads=2,
    )


def test_masks_that_say_where_to_look() -> None:
    feeds = [{**heads(n, s, t), "m": normal(s, t) > -0.5} for n, s, t in LENGTHS]
    check({**HEADS, "m": "bool[s,t]"}, "q k v m", feeds)


def test_masks_that_broadcast_at_run_time() -> None:
    feeds = [
        {**heads(n, s, t), "m": normal(c, h, s, t)}
        for (n, s, t), c, h in zip(LENGTHS, (1, 2, 1, 2), (4, 1, 1, 4), strict=True)
    ]
    check({**HEADS, "m": "float32[c,h,s,t]"}, "q k v m", feeds)


def test_lengths_of_each_entry() -> None:
    inputs = {**HEADS, "l": "int64[n]", "m": "float32[n,1,s,t]"}
    lengths = ((1, 1, 1), (2, 1, 5), (2, 2, 6))
    feeds = [
        {
            **heads(n, s, t),
            "m": normal(n, 1, s, t),
            "l": np.array([max(t - i, 1) for i in range(n)]),
        }
        for n, s, t in lengths
    ]
    check(inputs, "q k v m - - l", feeds, 24)


@pytest.mark.parametrize("mode", [0, 1, 3])
def test_scores_at_a_stage(mode: int) -> None:
    node = helper.make_node(
        "Attention",
        ["q", "k", "v", "m"],
        ["y", "", "", "qk"],
        qk_matmul_output_mode=mode,
        softcap=2.0,
    )
    feeds = [{**heads(n, s, t), "m": normal(s, t)} for n, s, t in LENGTHS]
    assert_like_onnxruntime(model_of([node], {**HEADS, "m": "float32[s,t]"}, opset=23), feeds)


@pytest.mark.parametrize("batch", ["n", "m"])
def test_weights_stay_float32_between_a_softmax_and_a_matmul(batch: str) -> None:
    """Also where run time decides how the batches broadcast."""
    nodes = [
        helper.make_node("Cast", ["scores"], ["wide"], to=TensorProto.FLOAT),
        helper.make_node("Softmax", ["wide"], ["weights"]),
        helper.make_node("Cast", ["weights"], ["narrow"], to=TensorProto.FLOAT16),
        helper.make_node("MatMul", ["narrow", "values"], ["y"]),
    ]
    built = build(
        model_of(
            nodes, {"scores": "float16[n,s,t]", "values": f"float16[{batch},t,8]"}, outputs=["y"]
        )
    )
    scores, values = (
        normal(2, 9, 64).astype(np.float16),
        normal(2, 64, 8, seed=1).astype(np.float16),
    )
    weights = np.exp(scores.astype(np.float32))
    wanted = (weights / weights.sum(-1, keepdims=True)) @ values.astype(np.float32)
    (got,) = built.run({"scores": scores, "values": values})
    assert got.dtype == np.float16
    # One unit in the last place where a sum lies half way between two numbers, and seldom.
    assert np.mean(got != wanted.astype(np.float16)) < 0.05

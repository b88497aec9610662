"""Attention of ONNX Runtime's own domain beside ONNX Runtime at several shapes."""

import numpy as np
import pytest

from compiler.errors import ImportFailed
from tests.compiler.ir.onnx.running import assert_like_onnxruntime, build, normal
from tests.compiler.ir.onnx.test_quantized import one_node

QKV = {"q": "float32[n,s,8]", "k": "float32[n,t,8]", "v": "float32[n,t,8]"}


def test_multi_head_attention_with_a_padding_mask() -> None:
    model = one_node("MultiHeadAttention", {**QKV, "m": "int32[n,t]"}, {"b": normal(24)}, "q k v b m", num_heads=2)
    feeds = []
    for n, s, t in ((1, 1, 1), (2, 3, 5)):
        mask = np.ones((n, t), np.int32)
        mask[-1, t // 2 + 1 :] = 0
        feeds.append({"q": normal(n, s, 8), "k": normal(n, t, 8, seed=1), "v": normal(n, t, 8, seed=2), "m": mask})
    assert_like_onnxruntime(model, feeds)


def test_attention_that_looks_back() -> None:
    constants = {"w": normal(8, 24), "b": normal(24)}
    model = one_node("Attention", {"x": "float32[n,s,8]"}, constants, "x w b", num_heads=2, unidirectional=1)
    assert_like_onnxruntime(model, [{"x": normal(1, 1, 8)}, {"x": normal(2, 5, 8)}])


def test_group_query_attention_beside_a_past() -> None:
    inputs = {"q": "float32[n,s,32]", "k": "float32[n,s,16]", "v": "float32[n,s,16]", "pk": "float32[n,2,p,8]", "pv": "float32[n,2,p,8]"}
    inputs |= {"l": "int32[n]", "t": "int32[]"}
    outputs = ["y", "key", "value"]
    model = one_node("GroupQueryAttention", inputs, {}, "q k v pk pv l t", outputs=outputs, num_heads=4, kv_num_heads=2)
    feeds = []
    for n, s, p in ((1, 1, 3), (2, 1, 5)):
        feed = {"q": normal(n, s, 32), "k": normal(n, s, 16, seed=1), "v": normal(n, s, 16, seed=2)}
        feed |= {"pk": normal(n, 2, p, 8), "pv": normal(n, 2, p, 8, seed=1)}
        feeds.append({**feed, "l": np.full(n, p + s - 1, np.int32), "t": np.asarray(p + s, np.int32)})
    assert_like_onnxruntime(model, feeds)


def test_beams_are_refused() -> None:
    model = one_node("MultiHeadAttention", {**QKV, "c": "int32[n,1,t]"}, {}, "q k v - - - - - - c", num_heads=2)
    with pytest.raises(ImportFailed, match="input 9 is not supported"):
        build(model)

"""Rotary embeddings of both domains beside ONNX Runtime at several shapes."""

from typing import Any

import numpy as np
import onnx
import pytest

from compiler.errors import ImportFailed
from tests.compiler.ir.onnx.operators.test_quantized import one_node
from tests.compiler.ir.onnx.running import assert_like_onnxruntime, build, normal

SIZES = ((1, 1), (2, 5), (3, 1))


def angles(width: int) -> dict[str, np.ndarray]:
    phase = np.arange(32)[:, None] * 0.5 ** np.arange(width)
    return {"c": np.cos(phase).astype(np.float32), "z": np.sin(phase).astype(np.float32)}


def draw_positions(n: int, s: int) -> np.ndarray:
    return np.random.default_rng(n).integers(0, 32, (n, s))


def microsoft(
    x: str, positions: str = "int64[n,s]", width: int = 4, **attributes: Any
) -> onnx.ModelProto:
    return one_node(
        "RotaryEmbedding", {"x": x, "p": positions}, angles(width), "x p c z", **attributes
    )


def standard(x: str, width: int = 4, **attributes: Any) -> onnx.ModelProto:
    return one_node(
        "RotaryEmbedding",
        {"x": x, "p": "int64[n,s]"},
        angles(width),
        "x c z p",
        "",
        version=23,
        **attributes,
    )


@pytest.mark.parametrize("interleaved", [0, 1])
def test_rows_of_heads(interleaved: int) -> None:
    feeds = [{"x": normal(n, s, 24), "p": draw_positions(n, s)} for n, s in SIZES]
    assert_like_onnxruntime(microsoft("float32[n,s,24]", interleaved=interleaved), feeds)
    assert_like_onnxruntime(
        standard("float32[n,s,24]", num_heads=3, interleaved=interleaved), feeds
    )


@pytest.mark.parametrize("interleaved", [0, 1])
def test_part_of_each_head(interleaved: int) -> None:
    attributes: dict[str, Any] = {"interleaved": interleaved, "rotary_embedding_dim": 4}
    feeds = [{"x": normal(n, 3, s, 8), "p": draw_positions(n, s)} for n, s in SIZES]
    assert_like_onnxruntime(
        microsoft("float32[n,3,s,8]", width=2, num_heads=3, **attributes), feeds
    )
    assert_like_onnxruntime(standard("float32[n,3,s,8]", width=2, **attributes), feeds)


def test_positions_from_the_first_on() -> None:
    feeds = [
        {"x": normal(n, s, 24), "p": np.array([first])}
        for n, s, first in ((1, 1, 0), (2, 5, 3), (3, 1, 31))
    ]
    assert_like_onnxruntime(microsoft("float32[n,s,24]", "int64[1]"), feeds)


def test_angles_of_each_row() -> None:
    inputs = {"x": "float32[n,3,s,8]", "c": "float32[n,s,4]", "z": "float32[n,s,4]"}
    feeds = [
        {"x": normal(n, 3, s, 8), "c": normal(n, s, 4), "z": normal(n, s, 4, seed=1)}
        for n, s in SIZES
    ]
    assert_like_onnxruntime(one_node("RotaryEmbedding", inputs, {}, "x c z", "", version=23), feeds)


def test_heads_of_a_symbolic_width() -> None:
    inputs = {"x": "float32[n,s,h]", "p": "int64[n,s]", "c": "float32[m,w]", "z": "float32[m,w]"}
    model = one_node("RotaryEmbedding", inputs, {}, "x p c z", num_heads=2)
    feeds = [
        {
            "x": normal(n, s, 4 * w),
            "p": draw_positions(n, s) % 9,
            "c": normal(9, w),
            "z": normal(9, w, seed=1),
        }
        for n, s, w in ((1, 1, 1), (2, 5, 3))
    ]
    assert_like_onnxruntime(model, feeds)


@pytest.mark.parametrize(
    ("attribute", "message"),
    [({"scale": 2.0}, "a scale"), ({"is_packed_batching": 1}, "packed batches")],
)
def test_what_is_refused(attribute: dict[str, Any], message: str) -> None:
    with pytest.raises(ImportFailed, match=message):
        build(microsoft("float32[n,s,24]", **attribute))

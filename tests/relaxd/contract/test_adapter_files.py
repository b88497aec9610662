"""Adapter files that are malformed, or change more than matmuls."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from relaxd.contract.adapter_files.adapter import Adapter, LowRank, Shape, fit
from relaxd.contract.adapter_files.reading import read_adapter
from relaxd.contract.model_folder import ADAPTER, ADAPTER_WEIGHTS
from relaxd.errors import AdapterError
from tests.support.models import adapters as am
from tests.support.models import gguf_files

FORM = am.LoraForm(rank=3, alpha=6)
MODULE = "model.layers.1.self_attn.q_proj"
PREFIX = f"base_model.model.{MODULE}"
SHAPE = Shape({"q_proj": 8, "k_proj": 4, "v_proj": 4}, 2, 1, neighbours=False)


def halves() -> dict[str, tuple[np.ndarray, np.ndarray]]:
    random = np.random.default_rng(0)
    first, second = random.standard_normal((3, 5)), random.standard_normal((8, 3))
    return {MODULE: (first.astype(np.float32), second.astype(np.float32))}


def write(folder: Path, **config: Any) -> Path:
    return am.write_peft(folder, halves(), FORM, **config)


def change_tensors(folder: Path, **tensors: np.ndarray | None) -> None:
    path = folder / ADAPTER_WEIGHTS
    stored = {**load_file(path), **tensors}
    save_file({name: array for name, array in stored.items() if array is not None}, path)


def test_the_change_has_its_scale(tmp_path: Path) -> None:
    (first, second) = halves()[MODULE]
    adapter = read_adapter(write(tmp_path))
    change = adapter.changes[1, "q_proj"]
    np.testing.assert_allclose(change.down @ change.up, 2 * (second @ first).T, rtol=1e-5)


@pytest.mark.parametrize("kind", [np.float16, pytest.param("bfloat16", id="bfloat16"), np.float32])
def test_halves_in_fewer_bits(tmp_path: Path, kind: Any) -> None:
    if kind == "bfloat16":
        kind = pytest.importorskip("ml_dtypes").bfloat16
    halved = {name: tuple(x.astype(kind) for x in pair) for name, pair in halves().items()}
    adapter = read_adapter(am.write_peft(tmp_path, halved, FORM))  # type: ignore[arg-type]
    first, second = (x.astype(np.float32) for x in halved[MODULE])
    change = adapter.changes[1, "q_proj"]
    np.testing.assert_array_equal(change.down, first.T)
    np.testing.assert_array_equal(change.up, second.T * np.float32(2))


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"peft_type": "IA3"}, "type 'IA3'"),
        ({"use_dora": True}, "DoRA"),
        ({"bias": "all"}, "bias=all"),
        ({"lora_bias": True}, "lora_bias"),
        ({"modules_to_save": ["lm_head"]}, "modules_to_save"),
        ({"init_lora_weights": "pissa"}, "pissa"),
        ({"init_lora_weights": 2}, "init_lora_weights='2'"),
        ({"alora_invocation_tokens": [1]}, "alora"),
        ({"rank_pattern": {"(a+)+$": 3}}, "rank_pattern"),
    ],
)
def test_adapters_that_do_more_are_refused_by_name(
    tmp_path: Path, config: dict[str, Any], message: str
) -> None:
    folder = write(tmp_path, **config)
    with pytest.raises(AdapterError, match=message) as caught:
        read_adapter(folder)
    assert caught.value.reason == "unsupported"
    assert caught.value.hint


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (f"{PREFIX}.lora_magnitude_vector", "DoRA"),
        ("base_model.model.model.embed_tokens.lora_embedding_A", "embeddings"),
        (f"{PREFIX}.lora_B.bias", "biases"),
        ("base_model.model.lm_head.weight", "lm_head"),
        ("base_model.model.lm_head.lora_A.weight", "lm_head"),
    ],
)
def test_tensors_of_no_matmul_are_refused_by_name(tmp_path: Path, name: str, message: str) -> None:
    folder = write(tmp_path)
    change_tensors(folder, **{name: np.ones((3, 5), np.float32)})
    with pytest.raises(AdapterError, match=message) as caught:
        read_adapter(folder)
    assert caught.value.reason == "unsupported"


@pytest.mark.parametrize(
    ("tensors", "message"),
    [
        ({f"{PREFIX}.lora_B.weight": None}, "one half"),
        ({f"{PREFIX}.lora_B.weight": np.ones((8, 2), np.float32)}, "different ranks"),
        ({f"{PREFIX}.lora_B.weight": np.full((8, 3), np.nan, np.float32)}, "NaN"),
        ({f"{PREFIX}.lora_A.weight": np.ones((3,), np.float32)}, "no matrix"),
        ({f"{PREFIX}.lora_A.weight": np.ones((3, 5), np.int8)}, "I8"),
    ],
)
def test_malformed_tensors(
    tmp_path: Path, tensors: dict[str, np.ndarray | None], message: str
) -> None:
    folder = write(tmp_path)
    change_tensors(folder, **tensors)
    with pytest.raises(AdapterError, match=message) as caught:
        read_adapter(folder)
    assert caught.value.reason == "file"


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"r": 4}, "says 4"),
        ({"lora_alpha": 0}, "lora_alpha"),
        ({"lora_alpha": "x"}, "lora_alpha"),
        ({"alpha_pattern": [1]}, "alpha_pattern"),
        ({"alpha_pattern": {"q_proj": True}}, "lora_alpha"),
    ],
)
def test_settings_that_contradict(tmp_path: Path, config: dict[str, Any], message: str) -> None:
    folder = write(tmp_path, **config)
    with pytest.raises(AdapterError, match=message):
        read_adapter(folder)


def test_files_that_are_none(tmp_path: Path) -> None:
    folder = write(tmp_path / "a")
    (folder / ADAPTER).write_text("[")
    with pytest.raises(AdapterError, match="not valid JSON"):
        read_adapter(folder)
    (folder / ADAPTER).write_text("[]")
    with pytest.raises(AdapterError, match="no JSON object"):
        read_adapter(folder)
    (folder / ADAPTER).write_text(json.dumps(FORM.config()))
    (folder / ADAPTER_WEIGHTS).write_bytes(b"")
    with pytest.raises(AdapterError, match="empty"):
        read_adapter(folder)
    (folder / ADAPTER_WEIGHTS).write_bytes(b"\xff" * 20)
    with pytest.raises(AdapterError, match="malformed"):
        read_adapter(folder)
    (folder / ADAPTER_WEIGHTS).unlink()
    with pytest.raises(AdapterError, match="cannot be read"):
        read_adapter(folder)
    other = tmp_path / "file"
    other.write_bytes(b"GGUF")
    with pytest.raises(AdapterError, match="ends early"):
        read_adapter(other)
    other.write_bytes(b"nothing")
    with pytest.raises(AdapterError, match="no GGUF file"):
        read_adapter(other)


@pytest.mark.parametrize(
    ("metadata", "message"),
    [
        ({"general.type": "model"}, "no LoRA"),
        ({"adapter.type": "control_vector"}, "no LoRA"),
        ({"adapter.alora.invocation_tokens": [1]}, "aLoRA"),
    ],
)
def test_gguf_files_that_are_no_adapters(
    tmp_path: Path, metadata: dict[str, Any], message: str
) -> None:
    own = {"general.type": "adapter", "adapter.type": "lora", "adapter.lora.alpha": 1.0}
    gguf_files.write(tmp_path / "a", {}, {**own, **metadata})
    with pytest.raises(AdapterError, match=message):
        read_adapter(tmp_path / "a")


def test_gguf_tensors_that_have_no_adapters(tmp_path: Path) -> None:
    module = "model.layers.1.self_attn.rotary"
    with pytest.raises(KeyError):
        am.write_gguf(tmp_path / "a", {module: halves()[MODULE]}, FORM)
    path = am.write_gguf(tmp_path / "a", halves(), FORM)
    data = path.read_bytes().replace(b"attn_q", b"attn_z")
    path.write_bytes(data)
    with pytest.raises(AdapterError, match="attn_z"):
        read_adapter(path)


def test_gguf_halves_in_blocks(tmp_path: Path) -> None:
    random = np.random.default_rng(1)
    pair = tuple(random.standard_normal(shape).astype("f4") for shape in ((32, 64), (64, 32)))
    form = am.LoraForm(rank=32, alpha=0.0)
    path = am.write_gguf(tmp_path / "a", {MODULE: pair}, form, kind=gguf_files.Q8_0)  # type: ignore[dict-item]
    change = read_adapter(path).changes[1, "q_proj"]
    np.testing.assert_allclose(change.down, pair[0].T, atol=0.02)
    np.testing.assert_allclose(change.up, pair[1].T, atol=0.02)


def test_joint_matmuls_are_cut_and_others_refused() -> None:
    change = LowRank(np.ones((5, 2), np.float32), np.arange(32, dtype=np.float32).reshape(2, 16))
    fitted = fit(Adapter({(0, "qkv_proj"): change}), SHAPE)
    assert {key[1]: part.up.shape for key, part in fitted.items()} == {
        "q_proj": (2, 8),
        "k_proj": (2, 4),
        "v_proj": (2, 4),
    }
    np.testing.assert_array_equal(np.hstack([part.up for part in fitted.values()]), change.up)
    with pytest.raises(AdapterError, match="of another model"):
        fit(Adapter({(0, "gate_up_proj"): change}), SHAPE)


def test_pairs_are_put_beside_each_other_and_back() -> None:
    up = np.arange(8, dtype=np.float32)[None]
    change = LowRank(np.ones((5, 1), np.float32), up)
    beside = fit(Adapter({(0, "q_proj"): change}), Shape({"q_proj": 8}, 2, 1, neighbours=True))
    np.testing.assert_array_equal(beside[0, "q_proj"].up, [[0, 2, 1, 3, 4, 6, 5, 7]])
    back = fit(Adapter({(0, "q_proj"): beside[0, "q_proj"]}, neighbours=True), SHAPE)
    np.testing.assert_array_equal(back[0, "q_proj"].up, up)

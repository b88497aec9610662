"""Decoders of folders: their graph in ONNX Runtime beside torch, for a prompt in parts."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from compiler.errors import LoadError
from compiler.ir.files.model_file import open_model
from compiler.ir.folder.architectures import ARCHITECTURES, design_of
from compiler.ir.folder.config import Config
from tests.compiler.ir.folder.decoding import compute_logits, open_onnx
from tests.support.models import folders as fm


@pytest.mark.parametrize("name", fm.FORMS)
def test_the_graph_is_the_decoder(folders: Path, name: str) -> None:
    want = np.load(folders / name / fm.LOGITS)
    got = compute_logits(open_onnx(folders / name))
    assert got.shape == want.shape
    assert np.abs(got - want).max() < 2e-5 * np.abs(want).max()


def copy_with(folders: Path, tmp_path: Path, change: dict[str, Any], name: str = "mistral") -> Path:
    """A folder with other settings; None takes one away."""
    shutil.copytree(folders / name, tmp_path / "m")
    path = tmp_path / "m" / "config.json"
    config = json.loads(path.read_text()) | change
    path.write_text(json.dumps({key: value for key, value in config.items() if value is not None}))
    return tmp_path / "m"


@pytest.mark.parametrize(
    ("change", "code", "message"),
    [
        ({"architectures": ["MambaForCausalLM"]}, "folder_architecture", "Qwen3ForCausalLM"),
        ({"architectures": ["LlamaForSequenceClassification"]}, "folder_architecture", "Llama"),
        ({"architectures": None}, "folder_architecture", "None"),
        ({"architectures": "LlamaForCausalLM"}, "folder_architecture", "None"),
        ({"architectures": [{}]}, "folder_architecture", "architecture"),
        ({"rope_parameters": {"rope_type": "longrope"}}, "folder_architecture", "'longrope'"),
        ({"rope_parameters": {"partial_rotary_factor": 0.5}}, "folder_architecture", "a part"),
        ({"rope_parameters": {"rope_type": "linear"}}, "folder", "factor"),
        ({"rope_parameters": 7}, "folder", "rope_parameters"),
        ({"hidden_act": "relu"}, "folder_architecture", "'relu'"),
        ({"num_key_value_heads": 3}, "folder_architecture", "groups"),
        ({"head_dim": 12}, "folder_architecture", "12 numbers"),
        ({"max_position_embeddings": (1 << 24) - 1}, "folder_architecture", "at most 4194304"),
        ({"num_hidden_layers": 0}, "folder", "num_hidden_layers"),
        ({"num_hidden_layers": 4}, "folder", "layers.3"),
        ({"num_hidden_layers": 2}, "folder_architecture", "9 tensors"),
        ({"hidden_size": 32}, "folder", "of the shape"),
        ({"vocab_size": "many"}, "folder", "vocab_size"),
        ({"rms_norm_eps": 1e400}, "folder", "rms_norm_eps"),
        ({"tie_word_embeddings": "yes"}, "folder", "tie_word_embeddings"),
        (
            {"quantization_config": {"quant_method": "fp8"}},
            "folder_architecture",
            "'fp8'.*gptq",
        ),
    ],
)
def test_other_decoders_are_refused(
    folders: Path, tmp_path: Path, change: dict[str, Any], code: str, message: str
) -> None:
    with pytest.raises(LoadError, match=message) as caught:
        open_model(copy_with(folders, tmp_path, change))
    assert caught.value.code == f"load.{code}"


def test_settings_of_older_versions_mean_the_same(folders: Path, tmp_path: Path) -> None:
    scaling = {
        "rope_type": "llama3",
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 32,
    }
    older = {"rope_parameters": None, "rope_theta": 5000.0, "rope_scaling": scaling}
    want = np.load(folders / "llama3" / fm.LOGITS)
    got = compute_logits(open_onnx(copy_with(folders, tmp_path, older, "llama3")))
    assert np.abs(got - want).max() < 2e-5 * np.abs(want).max()


def test_windows_that_follow_from_other_settings(folders: Path, tmp_path: Path) -> None:
    plain = {"layer_types": None, "no_rope_layers": None, "sliding_window_pattern": 2}
    for name in ("qwen2_windows", "smollm3", "gemma2", "gemma3"):
        want = np.load(folders / name / fm.LOGITS)
        got = compute_logits(open_onnx(copy_with(folders, tmp_path / name, plain, name)))
        assert np.abs(got - want).max() < 2e-5 * np.abs(want).max(), name


def test_a_broken_config_is_refused(folders: Path, tmp_path: Path) -> None:
    path = copy_with(folders, tmp_path, {})
    for text in (b"", b"{", b"[]", b"\xff", b"[" * 100_000):
        (path / "config.json").write_bytes(text)
        with pytest.raises(LoadError) as caught:
            open_model(path)
        assert caught.value.code == "load.folder"


VALUES = ["x", -1, 0, 1, 1e-300, 1e308, 10**30, True, [], [{}], {}, {"rope_type": "yarn"}]
"""In the place of any setting."""


@pytest.mark.parametrize("name", ["mistral", "llama_yarn", "smollm3", "gemma3"])
def test_any_setting_is_read_or_refused(folders: Path, tmp_path: Path, name: str) -> None:
    path = copy_with(folders, tmp_path, {}, name) / "config.json"
    config = json.loads(path.read_text())
    nested = config.get("rope_parameters", {})
    architecture = ARCHITECTURES[config["architectures"][0]]
    documents = [config | {key: value} for key in config for value in VALUES]
    documents += [
        config | {"rope_parameters": nested | {key: value}} for key in nested for value in VALUES
    ]
    refused = 0
    for document in documents:
        try:
            design_of(Config(document), architecture)
        except LoadError:
            refused += 1
    assert 0 < refused < len(documents)


def test_texts_that_are_none_are_refused(folders: Path, tmp_path: Path) -> None:
    path = copy_with(folders, tmp_path, {}, "mistral")
    for text in ('{"x": "\\ud800"}', "[1]", "{"):
        (path / "tokenizer.json").write_text(text)
        with pytest.raises(LoadError, match=r"tokenizer\.json"):
            open_model(path)

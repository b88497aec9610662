"""Random LoRA adapters of small folders, as PEFT and llama.cpp write them, and merged models."""

import json
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load_file, save_file

from tests.support.models import gguf_files

Array = np.ndarray[Any, Any]
ATTENTION = ("q_proj", "k_proj", "v_proj", "o_proj")
FORWARD = ("gate_proj", "up_proj", "down_proj")
GGUF_NAMES = {
    "q_proj": "attn_q",
    "k_proj": "attn_k",
    "v_proj": "attn_v",
    "o_proj": "attn_output",
    "gate_proj": "ffn_gate",
    "up_proj": "ffn_up",
    "down_proj": "ffn_down",
    "qkv_proj": "attn_qkv",
    "gate_up_proj": "ffn_up",
}


@dataclass(frozen=True)
class LoraForm:
    """Settings of an adapter; ranks, alphas: by ends of modules' names, where they differ."""

    rank: int = 8
    alpha: float = 16.0
    modules: Sequence[str] = (*ATTENTION, *FORWARD)
    rooted: bool = False
    ranks: Mapping[str, int] = field(default_factory=dict)
    alphas: Mapping[str, float] = field(default_factory=dict)

    def rank_of(self, module: str) -> int:
        return next((own for end, own in self.ranks.items() if module.endswith(end)), self.rank)

    def scale_of(self, module: str) -> float:
        alpha = next((own for end, own in self.alphas.items() if module.endswith(end)), self.alpha)
        rank = self.rank_of(module)
        return alpha / (rank**0.5 if self.rooted else rank)

    def config(self) -> dict[str, Any]:
        return {
            "peft_type": "LORA",
            "r": self.rank,
            "lora_alpha": self.alpha,
            "use_rslora": self.rooted,
            "rank_pattern": dict(self.ranks),
            "alpha_pattern": dict(self.alphas),
            "target_modules": sorted(self.modules),
            "bias": "none",
            "modules_to_save": None,
            "fan_in_fan_out": False,
            "init_lora_weights": True,
        }


def weights_of(model: Path) -> dict[str, Array]:
    """The float32 tensors of a folder."""
    files = sorted(model.glob("model*.safetensors"))
    return {name: array for file in files for name, array in load_file(file).items()}


def draw(model: Path, form: LoraForm, seed: int) -> dict[str, tuple[Array, Array]]:
    """The halves A [rank, depth] and B [columns, rank] by module."""
    random = np.random.default_rng(seed)
    halves = {}
    for name, weight in weights_of(model).items():
        module = name.removesuffix(".weight")
        if not module.endswith(tuple(form.modules)):
            continue
        (columns, depth), rank = weight.shape, form.rank_of(module)
        first = random.standard_normal((rank, depth)).astype(np.float32) / depth**0.5
        second = random.standard_normal((columns, rank)).astype(np.float32) * 0.2
        halves[module] = first, second
    return halves


def write_peft(
    folder: Path,
    halves: Mapping[str, tuple[Array, Array]],
    form: LoraForm,
    magnitudes: Mapping[str, Array] | None = None,
    **config: Any,
) -> Path:
    """Write a folder as PEFT does; magnitudes: of DoRA."""
    folder.mkdir(parents=True, exist_ok=True)
    tensors = {}
    for module, pair in halves.items():
        for letter, array in zip("AB", pair, strict=True):
            tensors[f"base_model.model.{module}.lora_{letter}.weight"] = array
    for module, magnitude in (magnitudes or {}).items():
        tensors[f"base_model.model.{module}.lora_magnitude_vector"] = magnitude
    save_file(tensors, folder / "adapter_model.safetensors", {"format": "pt"})
    (folder / "adapter_config.json").write_text(json.dumps({**form.config(), **config}))
    return folder


def write_gguf(
    path: Path,
    halves: Mapping[str, tuple[Array, Array]],
    form: LoraForm,
    heads: tuple[int, int] | None = None,
    kind: int = gguf_files.F32,
) -> Path:
    """Write a file as llama.cpp's convert_lora_to_gguf.py does; heads: those of queries and keys
    of an architecture whose pairs lie beside each other.
    """
    tensors = {}
    for module, (first, second) in halves.items():
        _, _, layer, _, name = module.split(".")
        if heads is not None and name in ("q_proj", "k_proj"):
            count = heads[name == "k_proj"]
            rows = second.reshape(count, 2, -1, second.shape[1])
            second = rows.swapaxes(1, 2).reshape(second.shape)
        new = f"blk.{layer}.{GGUF_NAMES[name]}.weight"
        tensors[f"{new}.lora_a"], tensors[f"{new}.lora_b"] = (kind, first), (kind, second)
    metadata = {
        "general.type": "adapter",
        "general.architecture": "llama" if heads else "qwen2",
        "adapter.type": "lora",
        "adapter.lora.alpha": float(form.alpha),
    }
    gguf_files.write(path, tensors, metadata)
    return path


def merge(
    model: Path,
    halves: Mapping[str, tuple[Array, Array]],
    form: LoraForm,
    folder: Path,
    magnitudes: Mapping[str, Array] | None = None,
) -> Path:
    """Write the model with the adapter in its weights; magnitudes: DoRA's norms of rows."""
    weights = weights_of(model)
    for module, (first, second) in halves.items():
        delta = second.astype(np.float64) @ first.astype(np.float64) * form.scale_of(module)
        changed = weights[f"{module}.weight"] + delta
        if magnitudes is not None:
            norms = np.sqrt((changed**2).sum(axis=1))
            changed = changed * (magnitudes[module] / norms)[:, None]
        weights[f"{module}.weight"] = changed.astype(np.float32)
    folder.mkdir(parents=True)
    shutil.copy(model / "config.json", folder)
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    return folder

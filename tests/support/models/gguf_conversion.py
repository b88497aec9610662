"""Folders of transformers as llama.cpp's converter writes them to GGUF files: names, orders of rows
and metadata.
"""

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from compiler.ir.folder.floats import as_float32
from compiler.ir.folder.tensors import tensors_of
from tests.support.models import gguf_files

KINDS = {
    "LlamaForCausalLM": "llama",
    "MistralForCausalLM": "llama",
    "SmolLM3ForCausalLM": "smollm3",
    "Qwen2ForCausalLM": "qwen2",
    "Qwen3ForCausalLM": "qwen3",
    "GraniteForCausalLM": "granite",
    "Olmo2ForCausalLM": "olmo2",
    "Phi3ForCausalLM": "phi3",
    "GemmaForCausalLM": "gemma",
    "Gemma2ForCausalLM": "gemma2",
    "Gemma3ForCausalLM": "gemma3",
}
_ROTATED_NEIGHBOURS = ("llama", "smollm3", "granite")
_OUTER = {
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "lm_head": "output",
}
_OF_A_LAYER = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.qkv_proj": "attn_qkv",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "pre_feedforward_layernorm": "ffn_norm",
    "post_feedforward_layernorm": "post_ffw_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.gate_up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
Stored = dict[str, tuple[int, np.ndarray[Any, Any]]]


def convert(folder: Path, kind: int = gguf_files.F32) -> tuple[Stored, dict[str, Any]]:
    """Tensors and metadata of the folder's model; kind: the format of its matrices."""
    config = json.loads((folder / "config.json").read_text())
    arch = KINDS[config["architectures"][0]]
    stored: Stored = {}
    for name, values in _tensors(folder):
        new = _rename(name, arch)
        if new.endswith("norm.weight") and arch.startswith("gemma"):
            values = values + np.float32(1)
        if arch in _ROTATED_NEIGHBOURS and ".attn_q." in new:
            values = _interleave(values, config["num_attention_heads"])
        if arch in _ROTATED_NEIGHBOURS and ".attn_k." in new:
            values = _interleave(values, config["num_key_value_heads"])
        stored[new] = (kind if values.ndim == 2 else gguf_files.F32, values)
    metadata = {"general.architecture": arch}
    metadata |= {f"{arch}.{name}": value for name, value in _settings(config).items()}
    if (rope := config["rope_parameters"]).get("rope_type") == "llama3":
        stored["rope_freqs.weight"] = (gguf_files.F32, _rates(rope, config["head_dim"]))
    return stored, metadata


def _tensors(folder: Path) -> Iterator[tuple[str, np.ndarray[Any, Any]]]:
    files = [(path.name, np.fromfile(path, np.uint8)) for path in folder.glob("*.safetensors")]
    tied = json.loads((folder / "config.json").read_text()).get("tie_word_embeddings")
    for name, stored in tensors_of(files).items():
        if not (tied and name == "lm_head.weight"):
            yield name, as_float32(name, stored)


def _rename(name: str, arch: str) -> str:
    module, _, ending = name.rpartition(".")
    if module in _OUTER:
        return f"{_OUTER[module]}.{ending}"
    _, _, layer, part = module.split(".", 3)
    if part == "post_attention_layernorm":
        twice = arch in ("gemma2", "gemma3", "olmo2")
        return f"blk.{layer}.{'post_attention_norm' if twice else 'ffn_norm'}.{ending}"
    return f"blk.{layer}.{_OF_A_LAYER[part]}.{ending}"


def _interleave(rows: np.ndarray[Any, Any], heads: int) -> np.ndarray[Any, Any]:
    """Numbers that rotate together are neighbours, not halves of a head apart."""
    halves = rows.reshape(heads, 2, -1, *rows.shape[1:])
    return halves.swapaxes(1, 2).reshape(rows.shape)


def _settings(config: dict[str, Any]) -> dict[str, Any]:
    rope = config["rope_parameters"]
    full = rope.get("full_attention", rope)
    result = {
        "block_count": config["num_hidden_layers"],
        "context_length": config["max_position_embeddings"],
        "embedding_length": config["hidden_size"],
        "feed_forward_length": config["intermediate_size"],
        "attention.head_count": config["num_attention_heads"],
        "attention.head_count_kv": config["num_key_value_heads"],
        "attention.layer_norm_rms_epsilon": config["rms_norm_eps"],
        "rope.freq_base": float(full["rope_theta"]),
    }
    named = {
        "attention.sliding_window": config.get("sliding_window"),
        "attn_logit_softcapping": config.get("attn_logit_softcapping"),
        "final_logit_softcapping": config.get("final_logit_softcapping"),
        "attention.key_length": config.get("head_dim"),
        "attention.value_length": config.get("head_dim"),
        "attention.scale": config.get("attention_multiplier"),
        "embedding_scale": config.get("embedding_multiplier"),
        "residual_scale": config.get("residual_multiplier"),
        "logit_scale": config.get("logits_scaling"),
        "rope.freq_base_swa": rope.get("sliding_attention", {}).get("rope_theta"),
    }
    if full.get("rope_type") in ("linear", "yarn"):
        named["rope.scaling.type"] = full["rope_type"]
        named["rope.scaling.factor"] = full["factor"]
        named["rope.scaling.original_context_length"] = full.get("original_max_position_embeddings")
    return result | {name: value for name, value in named.items() if value is not None}


def _rates(rope: dict[str, Any], size: int) -> np.ndarray[Any, Any]:
    """Llama 3's factors by pair, as the converter stores them."""
    low, high, factor = rope["low_freq_factor"], rope["high_freq_factor"], rope["factor"]
    context = rope["original_max_position_embeddings"]
    rates = []
    for pair in range(size // 2):
        wave = 2 * math.pi * rope["rope_theta"] ** (2 * pair / size)
        if wave < context / high:
            rates.append(1.0)
        elif wave > context / low:
            rates.append(factor)
        else:
            smooth = (context / wave - low) / (high - low)
            rates.append(1 / ((1 - smooth) / factor + smooth))
    return np.array(rates, np.float32)

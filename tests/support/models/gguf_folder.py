"""A GGUF file of a llama decoder as the folder that Hugging Face's libraries would have of it."""

import json
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file

from compiler.ir.decoders.quantized import dequantize
from compiler.ir.gguf.blocks import tensor_of
from compiler.ir.gguf.file import read_gguf
from compiler.ir.gguf.tokenizer import text_files

_NAMES = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
    "token_embd": "model.embed_tokens",
    "output_norm": "model.norm",
    "output": "lm_head",
}


def convert(path: Path, folder: Path) -> Path:
    """The folder, with float32 weights."""
    file = read_gguf(path)
    meta = {key.removeprefix("llama."): value for key, value in file.metadata.items()}
    heads, groups = meta["attention.head_count"], meta["attention.head_count_kv"]
    turned = {"attn_q": heads, "attn_k": groups}
    weights = {}
    for name, stored in file.tensors.items():
        parts = name.removesuffix(".weight").split(".")
        array = dequantize(tensor_of(name, stored))
        if parts[-1] in turned:
            array = _rope_order(array, turned[parts[-1]])
        index = f"model.layers.{parts[1]}." if parts[0] == "blk" else ""
        weights[f"{index}{_NAMES[parts[-1]]}.weight"] = np.ascontiguousarray(array)
    folder.mkdir()
    save_file(weights, folder / "model.safetensors")
    config = {
        "architectures": ["LlamaForCausalLM"],
        "vocab_size": len(weights["model.embed_tokens.weight"]),
        "hidden_size": meta["embedding_length"],
        "intermediate_size": meta["feed_forward_length"],
        "num_hidden_layers": meta["block_count"],
        "num_attention_heads": heads,
        "num_key_value_heads": groups,
        "max_position_embeddings": meta["context_length"],
        "rope_theta": meta["rope.freq_base"],
        "rms_norm_eps": meta["attention.layer_norm_rms_epsilon"],
        "tie_word_embeddings": "lm_head.weight" not in weights,
    }
    for name, document in {"config.json": config, **text_files(file).documents}.items():
        (folder / name).write_text(json.dumps(document))
    return folder


def _rope_order(array: np.ndarray[Any, Any], heads: int) -> np.ndarray[Any, Any]:
    """Rows of heads whose neighbours rotate, for halves that do."""
    apart = array.reshape(heads, -1, 2, array.shape[1])
    return apart.swapaxes(1, 2).reshape(array.shape)

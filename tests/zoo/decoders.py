"""More language models over whole prompts, each from a small config."""

from typing import Any

from tests.zoo.generative import PROMPTS, padded_prompts
from tests.zoo.recipes import WORDS, Recipe, cases

_TEXT = {"input_ids": "int64[batch,seq]", "attention_mask": "int64[batch,seq]"}
_SIZE = {
    "vocab_size": WORDS,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "max_position_embeddings": 256,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
_GROUPED = _SIZE | {"num_key_value_heads": 2}


def _decoder(model: str, sized: dict[str, Any], **size: Any) -> Recipe:
    return Recipe(
        model, sized | size, _TEXT, {"batch": 2, "seq": 9}, ("logits",), {"use_cache": False}
    )


DECODERS = {
    "mistral": _decoder("MistralForCausalLM", _GROUPED, sliding_window=16),
    "gemma": _decoder("GemmaForCausalLM", _GROUPED, head_dim=16),
    "gemma2": _decoder("Gemma2ForCausalLM", _GROUPED, head_dim=16, sliding_window=16),
    "gemma3": _decoder("Gemma3ForCausalLM", _GROUPED, head_dim=16, sliding_window=16),
    "phi": _decoder("PhiForCausalLM", _SIZE, partial_rotary_factor=0.5),
    "phi3": _decoder("Phi3ForCausalLM", _GROUPED),
    "qwen2": _decoder("Qwen2ForCausalLM", _GROUPED),
    "qwen3": _decoder("Qwen3ForCausalLM", _GROUPED, head_dim=16),
    "qwen3_moe": _decoder(
        "Qwen3MoeForCausalLM", _GROUPED, head_dim=16, num_experts=4, num_experts_per_tok=2,
        moe_intermediate_size=32, experts_implementation="batched_mm",
    ),
    "gpt_neox": _decoder("GPTNeoXForCausalLM", _SIZE),
    "gpt_neo": _decoder(
        "GPTNeoForCausalLM", _SIZE | {"num_heads": 4, "num_layers": 2},
        attention_types=[[["global", "local"], 1]], window_size=16,
    ),
    "gptj": _decoder(
        "GPTJForCausalLM", {"vocab_size": WORDS},
        n_embd=32, n_layer=2, n_head=4, rotary_dim=4, n_positions=256,
    ),
    "opt": _decoder("OPTForCausalLM", _SIZE, ffn_dim=64, word_embed_proj_dim=16),
    "bloom": _decoder(
        "BloomForCausalLM", {"vocab_size": WORDS}, hidden_size=32, n_layer=2, n_head=4
    ),
    "falcon": _decoder(
        "FalconForCausalLM", _SIZE, alibi=False, new_decoder_architecture=True, num_kv_heads=2
    ),
    "mpt": _decoder(
        "MptForCausalLM", {"vocab_size": WORDS}, d_model=32, n_heads=4, n_layers=2, max_seq_len=128
    ),
    "olmo2": _decoder("Olmo2ForCausalLM", _GROUPED),
    "stablelm": _decoder("StableLmForCausalLM", _GROUPED, qk_layernorm=True),
    "deepseek_v3": _decoder(
        "DeepseekV3ForCausalLM", _SIZE, q_lora_rank=16, kv_lora_rank=16, qk_rope_head_dim=8,
        qk_nope_head_dim=8, v_head_dim=8, n_routed_experts=4, n_shared_experts=1, n_group=2,
        topk_group=1, num_experts_per_tok=2, moe_intermediate_size=32, first_k_dense_replace=1,
        experts_implementation="batched_mm",
    ),
    "gpt_oss": _decoder(
        "GptOssForCausalLM", _GROUPED, head_dim=8, num_local_experts=4, num_experts_per_tok=2,
        sliding_window=16, experts_implementation="batched_mm",
    ),
    "lfm2": _decoder("Lfm2ForCausalLM", _GROUPED, layer_types=["conv", "full_attention"]),
}  # fmt: skip

CASES = tuple(
    case
    for name, recipe in DECODERS.items()
    for case in cases(name, recipe, *PROMPTS, feeds=padded_prompts)
)

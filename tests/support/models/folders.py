"""Small language models with random weights, as transformers saves them, and what torch gives.

`python -m tests.support.models.folders FOLDER NAME...` writes them, in a process that may import
torch.
"""

import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

WORDS, LAYERS, HEADS, GROUPS, SIZE, WIDTH, HIDDEN, LONGEST = 61, 3, 4, 2, 16, 48, 80, 96
SIZES: dict[str, Any] = {
    "vocab_size": WORDS,
    "hidden_size": WIDTH,
    "intermediate_size": HIDDEN,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": HEADS,
    "num_key_value_heads": GROUPS,
    "head_dim": SIZE,
    "max_position_embeddings": LONGEST,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
ROUND = {"hidden_size": HEADS * SIZE}
"""Of architectures whose heads are the hidden size together."""
WINDOW = 7
TOKENS = [3, 49, 0, 17, 17, 8, 30, 60, 5, 5, 41, 22, 9, 1, 33, 58, 12]
LOGITS = "logits.npy"
FORMS: dict[str, tuple[str, Mapping[str, Any]]] = {
    "llama": ("Llama", {}),
    "llama_half": ("Llama", {"dtype": "float16"}),
    "llama_tied": ("Llama", {"tie_word_embeddings": True, "attention_bias": True}),
    "llama_linear": ("Llama", {"rope_parameters": {"rope_type": "linear", "factor": 4.0}}),
    "llama3": (
        "Llama",
        {
            "rope_parameters": {
                "rope_type": "llama3",
                "factor": 8.0,
                "low_freq_factor": 1.0,
                "high_freq_factor": 4.0,
                "original_max_position_embeddings": 32,
            }
        },
    ),
    "llama_yarn": (
        "Llama",
        {
            "rope_parameters": {
                "rope_type": "yarn",
                "factor": 4.0,
                "original_max_position_embeddings": 24,
            }
        },
    ),
    "llama_wide": ("Llama", ROUND | {"intermediate_size": 192, "tie_word_embeddings": True}),
    "phi3_wide": ("Phi3", ROUND | {"intermediate_size": 192}),
    "mistral": ("Mistral", {"sliding_window": WINDOW}),
    "mistral_full": ("Mistral", {"sliding_window": None}),
    "qwen2": ("Qwen2", ROUND | {"dtype": "bfloat16"}),
    "qwen2_windows": (
        "Qwen2",
        ROUND | {"use_sliding_window": True, "sliding_window": WINDOW, "max_window_layers": 1},
    ),
    "qwen3": ("Qwen3", {"tie_word_embeddings": True}),
    "smollm3": ("SmolLM3", ROUND | {"no_rope_layer_interval": 2}),
    "granite": (
        "Granite",
        ROUND
        | {
            "embedding_multiplier": 3.0,
            "attention_multiplier": 0.2,
            "residual_multiplier": 0.3,
            "logits_scaling": 4.0,
        },
    ),
    "olmo2": ("Olmo2", ROUND),
    "phi3": ("Phi3", ROUND | {"sliding_window": WINDOW}),
    "gemma": ("Gemma", {}),
    "gemma2": ("Gemma2", {"sliding_window": WINDOW, "query_pre_attn_scalar": 20}),
    "gemma3": ("Gemma3Text", {"sliding_window": WINDOW, "sliding_window_pattern": 2}),
    # As their GGUF files have to be, which state less.
    "smollm3_deep": ("SmolLM3", ROUND | {"num_hidden_layers": 4}),
    "gemma2_own": ("Gemma2", {"sliding_window": WINDOW, "query_pre_attn_scalar": SIZE}),
    "gemma3_deep": (
        "Gemma3Text",
        {"sliding_window": WINDOW, "query_pre_attn_scalar": SIZE, "num_hidden_layers": 7},
    ),
}
"""The class of the configuration, and what it states besides `SIZES`."""


def write(folder: Path, names: Iterable[str]) -> None:
    """Write each model to a folder of its name, and in it what torch gives for `TOKENS`, as an
    array [tokens, words] in `LOGITS`.
    """
    command = [sys.executable, "-m", "tests.support.models.folders", str(folder), *names]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def _write(folder: Path, name: str) -> None:
    import torch
    import transformers

    kind, own = FORMS[name]
    declared = {**SIZES, "rope_theta": 5000.0, **own}
    if "rope_parameters" in declared:
        declared["rope_parameters"] = {"rope_theta": 5000.0, **declared["rope_parameters"]}
    dtype = getattr(torch, declared.pop("dtype", "float32"))
    config = getattr(transformers, f"{kind}Config")(**declared)
    config._attn_implementation = "eager"
    torch.manual_seed(3)
    created = transformers.AutoModelForCausalLM.from_config(config).eval()
    for key, values in created.named_parameters():
        # Norms and biases are neither ones nor zeros.
        sampled = torch.randn(values.shape)
        if values.dim() == 1:
            values.data += 0.2 * sampled
        else:
            values.data = sampled * (1 if "embed" in key else 1.5 / values.shape[-1] ** 0.5)
        # Not the rotations, as `made.to` would have it.
        values.data = values.data.to(dtype)
    created.save_pretrained(folder, max_shard_size="40kB" if name == "llama" else "1GB")
    with torch.no_grad():
        result = created.float()(torch.tensor([TOKENS]), use_cache=False).logits[0]
    np.save(folder / LOGITS, result.numpy())


if __name__ == "__main__":
    import transformers

    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    for each in sys.argv[2:]:
        _write(Path(sys.argv[1], each), each)

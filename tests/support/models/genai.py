"""Small language models with random weights as onnxruntime-genai's builder exports them.

`python -m tests.support.models.genai FOLDER PRECISION NAME...` writes
FOLDER/NAME/PRECISION/model.onnx, in a process that may import torch.
"""

import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from tests.support.models.folders import SIZES

_SIZES = SIZES | {
    # The builder knows the last matmul by this size, which no other matrix may have.
    "vocab_size": 96,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "rope_theta": 5000.0,
}
_LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 5000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}
# ONNX Runtime turns a multiple of 16 of a head's numbers, and these turn half of them.
_WIDE_HEADS = {"num_attention_heads": 2, "num_key_value_heads": 2, "head_dim": 32}
_WINDOWS = {"sliding_window": 7, "layer_types": ["sliding_attention", "full_attention"]}
_SHORT_CONVOLUTIONS = {
    "layer_types": ["conv", "full_attention"],
    "conv_L_cache": 3,
    "block_auto_adjust_ff_dim": False,
}
FORMS: dict[str, tuple[str, Mapping[str, Any]]] = {
    "ernie": ("Ernie4_5", {}),
    "gemma": ("Gemma", {}),
    "gemma2": ("Gemma2", _WINDOWS),
    "gpt_oss": (
        "GptOss",
        {
            "head_dim": 16,
            "num_local_experts": 4,
            "num_experts_per_tok": 2,
            "sliding_window": 8,
            "swiglu_limit": 7.0,
        },
    ),
    "granite": ("Granite", {}),
    "hunyuan": ("HunYuanDenseV1", {}),
    "lfm2": ("Lfm2", _SHORT_CONVOLUTIONS),
    "lfm2_moe": (
        "Lfm2Moe",
        {
            "layer_types": ["conv", "full_attention"],
            "conv_L_cache": 3,
            "num_experts": 4,
            "num_experts_per_tok": 2,
            "moe_intermediate_size": 64,
            "num_dense_layers": 1,
        },
    ),
    "llama": ("Llama", {}),
    "llama_tied": ("Llama", {"tie_word_embeddings": True}),
    "llama3": ("Llama", {"rope_parameters": _LLAMA3}),
    "mistral": ("Mistral", {}),
    "nemotron": ("Nemotron", _WIDE_HEADS),
    "olmo": ("Olmo", {}),
    "phi": ("Phi", _WIDE_HEADS),
    "phi3": ("Phi3", {"original_max_position_embeddings": 96}),
    "qwen2": ("Qwen2", {}),
    "qwen3": ("Qwen3", {}),
    "smollm3": ("SmolLM3", {}),
}
"""The class of the configuration, and what it states besides the sizes."""
OPTIONS = {name: ["windowed_kv_cache=false"] for name in ("gemma2", "gpt_oss")}
"""Extra options of the builder."""


def export(folder: Path, names: Iterable[str], precision: str) -> None:
    """Write the models to folder/name/precision."""
    command = [sys.executable, "-m", "tests.support.models.genai", str(folder), precision, *names]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def _save(folder: Path, name: str) -> None:
    """Save as transformers does, with a tokenizer, without which the builder exports nothing."""
    import torch
    import transformers
    from tokenizers import Tokenizer, models, pre_tokenizers

    kind, own = FORMS[name]
    config = getattr(transformers, f"{kind}Config")(**{**_SIZES, **own})
    torch.manual_seed(3)
    created = transformers.AutoModelForCausalLM.from_config(config)
    for key, values in created.named_parameters():
        # Norms and biases are neither ones nor zeros.
        sampled = torch.randn(values.shape)
        if values.dim() == 1:
            values.data += 0.2 * sampled
        else:
            values.data = sampled * (1 if "embed" in key else 1.5 / values.shape[-1] ** 0.5)
    created.save_pretrained(folder)
    if name == "gpt_oss":
        _add_packed_experts(folder, created)
    words = {chr(33 + i): i for i in range(90)} | {"<s>": 90, "</s>": 91}
    tokenizer = Tokenizer(models.BPE(vocab=words, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel()
    transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>"
    ).save_pretrained(folder)


def _add_packed_experts(folder: Path, created: Any) -> None:
    """Make a GPT-OSS, of which the builder quantizes only experts in MXFP4, as that model's own
    files hold them: random codes of 4 bits, and powers of two as the scales of 32 of them.
    """
    import torch
    from safetensors.torch import load_file, save_file

    path = folder / "model.safetensors"
    tensors = load_file(path)
    for number, layer in enumerate(created.model.layers):
        for kind in ("gate_up_proj", "down_proj"):
            experts, depth, columns = getattr(layer.mlp.experts, kind).shape
            name = f"model.layers.{number}.mlp.experts.{kind}"
            blocks = (experts, columns, depth // 32)
            tensors[f"{name}_blocks"] = torch.randint(256, (*blocks, 16), dtype=torch.uint8)
            tensors[f"{name}_scales"] = torch.randint(122, 124, blocks, dtype=torch.uint8)
    save_file(tensors, path, metadata={"format": "pt"})


def _export(folder: Path, name: str, precision: str) -> None:
    from onnxruntime_genai.models import builder

    source = folder / name / "saved"
    if not source.exists():
        _save(source, name)
    arguments = (str(source), str(source), str(folder / name / precision), precision, "cpu")
    options = builder.parse_extra_options(*arguments, str(source), OPTIONS.get(name, []))
    builder.create_model(*arguments, str(source), **options)


if __name__ == "__main__":
    import transformers

    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    for each in sys.argv[3:]:
        _export(Path(sys.argv[1]), each, sys.argv[2])

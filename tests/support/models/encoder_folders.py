"""Small encoders with random weights, as transformers saves them, and what torch gives.

`python -m tests.support.models.encoder_folders FOLDER NAME...` writes them, in a process that may
import torch.
"""

import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

WORDS, LAYERS, HEADS, WIDTH, HIDDEN, LONGEST, PADDING = 61, 3, 4, 64, 80, 200, 1
SIZES = ((1, 1), (2, 7), (3, 16), (1, 131), (2, 190))
"""Batches and lengths: one token, a prime, a multiple of every tile, beyond the farthest distance
that has a bias of its own, and nearly as long as positions go."""
ROWS = "rows.npy"
TEXT: dict[str, Any] = {
    "vocab_size": WORDS,
    "hidden_size": WIDTH,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": HEADS,
    "intermediate_size": HIDDEN,
    "max_position_embeddings": LONGEST,
    "pad_token_id": PADDING,
    "bos_token_id": 0,
    "eos_token_id": 2,
}
_MODERN = TEXT | {
    "cls_token_id": 0,
    "sep_token_id": 2,
    "local_attention": 12,
    "num_hidden_layers": 4,
}
_DISTIL = {
    "vocab_size": WORDS,
    "dim": WIDTH,
    "n_layers": LAYERS,
    "n_heads": HEADS,
    "hidden_dim": HIDDEN,
    "max_position_embeddings": LONGEST,
    "pad_token_id": PADDING,
}
_LABELS = {"num_labels": 3}
FORMS: dict[str, tuple[str, str, Mapping[str, Any]]] = {
    "bert": ("BertModel", "Bert", TEXT),
    "bert_half": ("BertModel", "Bert", TEXT | {"dtype": "float16"}),
    "bert_tanh": ("BertModel", "Bert", TEXT | {"hidden_act": "gelu_new", "type_vocab_size": 1}),
    "bert_classes": ("BertForSequenceClassification", "Bert", TEXT | {"num_labels": 1}),
    "bert_tokens": ("BertForTokenClassification", "Bert", TEXT | _LABELS),
    "bert_answers": ("BertForQuestionAnswering", "Bert", TEXT),
    "bert_words": ("BertForMaskedLM", "Bert", TEXT),
    "roberta": ("RobertaModel", "Roberta", TEXT | {"type_vocab_size": 1}),
    "roberta_classes": ("RobertaForSequenceClassification", "Roberta", TEXT | _LABELS),
    "roberta_words": ("RobertaForMaskedLM", "Roberta", TEXT),
    "xlm_roberta": ("XLMRobertaModel", "XLMRoberta", TEXT | {"dtype": "bfloat16"}),
    "camembert": ("CamembertForTokenClassification", "Camembert", TEXT | _LABELS),
    "mpnet": ("MPNetModel", "MPNet", TEXT),
    "mpnet_classes": ("MPNetForSequenceClassification", "MPNet", TEXT | _LABELS),
    "electra": ("ElectraModel", "Electra", TEXT | {"embedding_size": 24}),
    "electra_classes": (
        "ElectraForSequenceClassification",
        "Electra",
        TEXT | {"embedding_size": WIDTH},
    ),
    "distilbert": ("DistilBertModel", "DistilBert", _DISTIL),
    "distilbert_classes": ("DistilBertForSequenceClassification", "DistilBert", _DISTIL | _LABELS),
    "distilbert_answers": ("DistilBertForQuestionAnswering", "DistilBert", _DISTIL),
    "distilbert_words": ("DistilBertForMaskedLM", "DistilBert", _DISTIL),
    "modernbert": ("ModernBertModel", "ModernBert", _MODERN),
    "modernbert_classes": (
        "ModernBertForSequenceClassification",
        "ModernBert",
        _MODERN | _LABELS | {"classifier_pooling": "mean", "norm_bias": True, "mlp_bias": True},
    ),
    "modernbert_tokens": (
        "ModernBertForTokenClassification",
        "ModernBert",
        _MODERN | _LABELS | {"attention_bias": True, "classifier_bias": True},
    ),
    "modernbert_words": ("ModernBertForMaskedLM", "ModernBert", _MODERN),
}
"""The class of the model, that of its configuration without its ending, and what it states."""


def write(folder: Path, names: Iterable[str]) -> None:
    """Write each model to a folder of its name, and beside it, for each of `SIZES`, the inputs and
    what torch gives, in `NAME.BATCHxLENGTH.npz`; and beside MPNet's, in `ROWS`, the row of a table
    of biases for each distance.
    """
    command = [sys.executable, "-m", "tests.support.models.encoder_folders", str(folder), *names]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def load(folder: Path, name: str, size: tuple[int, int]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The inputs and the outputs of a size."""
    with np.load(folder / f"{name}.{size[0]}x{size[1]}.npz") as stored:
        arrays = dict(stored)
    inputs = {key[3:]: value for key, value in arrays.items() if key.startswith("in.")}
    return inputs, {key[4:]: value for key, value in arrays.items() if key.startswith("out.")}


def text_inputs(size: tuple[int, int], types: int) -> dict[str, Any]:
    """Tokens whose rows end early, some sooner than others; the mask hides the padding."""
    batch, length = size
    generator = np.random.default_rng(length)
    ends = generator.integers(1, length + 1, [batch, 1])
    ends[0] = length
    mask = (np.arange(length) < ends).astype(np.int64)
    tokens = generator.integers(PADDING + 1, WORDS, size)
    inputs = {"input_ids": np.where(mask, tokens, PADDING), "attention_mask": mask}
    if types > 1:
        inputs["token_type_ids"] = generator.integers(0, types, size)
    return inputs


def randomize(model: Any, torch: Any) -> None:
    """Weights under which every part matters: norms and biases are neither ones nor zeros."""
    for name, values in model.named_parameters():
        sampled = torch.randn(values.shape)
        if values.dim() == 1:
            values.data += 0.2 * sampled
        elif "embed" in name or "bias" in name or "token" in name:
            values.data = sampled
        else:
            values.data = sampled * 1.5 / values[0].numel() ** 0.5


def _write(folder: Path, name: str) -> None:
    import torch
    import transformers

    model_class, kind, own = FORMS[name]
    settings = dict(own)
    dtype = getattr(torch, settings.pop("dtype", "float32"))
    config = getattr(transformers, f"{kind}Config")(**settings, attn_implementation="eager")
    torch.manual_seed(3)
    model = getattr(transformers, model_class)(config).eval()
    if name == "mpnet":
        np.save(folder / ROWS, model.encoder.relative_position_bucket(torch.arange(-1999, 2000)))
    randomize(model, torch)
    model.tie_weights()
    # Buffers stay float32, as `model.to` would not have it.
    for values in model.parameters():
        values.data = values.data.to(dtype)
    model.config.dtype = dtype
    model.save_pretrained(folder / name)
    model = model.float()
    for size in SIZES:
        inputs = text_inputs(size, getattr(config, "type_vocab_size", 0) if _has_types(kind) else 0)
        with torch.no_grad():
            result = model(**{key: torch.tensor(value) for key, value in inputs.items()})
        save(folder, name, size, inputs, result)


def _has_types(kind: str) -> bool:
    return kind not in ("MPNet", "DistilBert", "ModernBert")


def save(
    folder: Path, name: str, size: tuple[int, int], inputs: Mapping[str, Any], result: Any
) -> None:
    """Write what `load` reads."""
    outputs = {f"out.{key}": value.numpy() for key, value in result.items()}
    arrays = {f"in.{key}": value for key, value in inputs.items()} | outputs
    np.savez(folder / f"{name}.{size[0]}x{size[1]}.npz", **arrays)


if __name__ == "__main__":
    import transformers

    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    for each in sys.argv[2:]:
        _write(Path(sys.argv[1]), each)

"""Encoders of text, from small configs with random weights."""

from typing import TYPE_CHECKING, Any

from tests.zoo.case import SPREAD, sizes
from tests.zoo.exporting import Program, both
from tests.zoo.packaged import masked_rows

if TYPE_CHECKING:
    from torch import nn

WORDS = 1000
POINTS = sizes("batch seq", (1, 1), (3, 7), (2, 128), (5, 311), (8, 512))


def bert() -> Program:
    """BERT with its pooler."""
    from transformers import BertConfig, BertModel

    size: dict[str, Any] = {
        "hidden_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "intermediate_size": 128,
        "initializer_range": SPREAD,
    }
    config = BertConfig(vocab_size=WORDS, attn_implementation="eager", **size)
    return _encoder(
        BertModel,
        config,
        ("input_ids", "attention_mask", "token_type_ids"),
        ("last_hidden_state", "pooler_output"),
    )


def distilbert() -> Program:
    """DistilBERT."""
    from transformers import DistilBertConfig, DistilBertModel

    config = DistilBertConfig(
        vocab_size=WORDS,
        attn_implementation="eager",
        dim=64,
        n_layers=2,
        n_heads=4,
        hidden_dim=128,
        initializer_range=SPREAD,
    )
    return _encoder(
        DistilBertModel, config, ("input_ids", "attention_mask"), ("last_hidden_state",)
    )


def _encoder(
    kind: "type[nn.Module]", config: Any, inputs: tuple[str, ...], outputs: tuple[str, ...]
) -> Program:
    import torch

    from tests.zoo.wrapping import Positional

    args = tuple(torch.ones(2, 9, dtype=torch.int64) for _ in inputs)
    return Program(
        Positional(kind(config), inputs, outputs),
        args,
        inputs,
        outputs,
        {name: {0: "batch", 1: "seq"} for name in inputs},
    )


_DIMS = {"batch": "1:8", "seq": "1:512"}

CASES = (
    *both("bert", bert, _DIMS, POINTS, draw={"input_ids": WORDS}, feeds=masked_rows),
    *both("distilbert", distilbert, _DIMS, POINTS, draw={"input_ids": WORDS}, feeds=masked_rows),
)

"""More encoders of text, and models of texts to texts, each from a small config."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.random import Generator

from tests.zoo.case import Case, Feed, Sizes, sizes
from tests.zoo.packaged import masked_rows
from tests.zoo.recipes import WORDS, Recipe, cases

DIMS = {"batch": "1:8", "seq": "1:96"}
POINTS = sizes("batch seq", (1, 1), (3, 7), (2, 32), (5, 61), (8, 96))
_EXAMPLE = {"batch": 2, "seq": 9}
_TEXT = {"input_ids": "int64[batch,seq]", "attention_mask": "int64[batch,seq]"}
_TYPED = _TEXT | {"token_type_ids": "int64[batch,seq]"}
_PAIR = _TEXT | {"decoder_input_ids": "int64[batch,target]"}
_STATES = ("last_hidden_state",)
_POOLED = ("last_hidden_state", "pooler_output")
_SIZE = {
    "vocab_size": WORDS,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "pad_token_id": 0,
}
_TYPES = {"token_type_ids": 2}
_SIDES = {
    "vocab_size": WORDS,
    "d_model": 32,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 64,
    "decoder_ffn_dim": 64,
    "max_position_embeddings": 128,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "decoder_start_token_id": 2,
}


def _text(model: str, **size: Any) -> Recipe:
    return Recipe(model, _SIZE | size, _TEXT, _EXAMPLE, _STATES)


def _typed(model: str, outputs: tuple[str, ...] = _STATES, **size: Any) -> Recipe:
    return Recipe(model, _SIZE | size, _TYPED, _EXAMPLE, outputs, below=_TYPES)


def _translating(model: str, **size: Any) -> Recipe:
    return Recipe(
        model, _SIDES | size, _PAIR, _EXAMPLE | {"target": 5}, ("logits",), {"use_cache": False}
    )


def _boxed(point: Sizes, generator: Generator) -> Feed:
    """`bbox`: a corner and one at its right and below."""
    corner = generator.integers(0, 60, [point["batch"], point["seq"], 2])
    size = generator.integers(0, 60, [point["batch"], point["seq"], 2])
    return masked_rows(point, generator) | {"bbox": np.concatenate([corner, corner + size], -1)}


ENCODERS = {
    "roberta": _text("RobertaModel", max_position_embeddings=130),
    "albert": _typed("AlbertModel", _POOLED, embedding_size=16),
    "electra": _typed("ElectraModel", embedding_size=16),
    "deberta": _text("DebertaModel", relative_attention=True, pos_att_type=["c2p", "p2c"]),
    "deberta_v2": _text(
        "DebertaV2Model",
        relative_attention=True,
        pos_att_type=["c2p", "p2c"],
        position_buckets=16,
        share_att_key=True,
        norm_rel_ebd="layer_norm",
    ),
    "mpnet": _text("MPNetModel"),
    "modernbert": _text(
        "ModernBertModel", local_attention=16, cls_token_id=1, sep_token_id=2, bos_token_id=1,
        eos_token_id=2,
    ),
    "nomic_bert": _typed("NomicBertModel"),
    "roformer": _typed("RoFormerModel", embedding_size=16),
    "convbert": _typed("ConvBertModel", embedding_size=16, conv_kernel_size=5),
    "mobilebert": _typed(
        "MobileBertModel", embedding_size=16, intra_bottleneck_size=16, intermediate_size=32,
        true_hidden_size=16,
    ),
    "squeezebert": _typed(
        "SqueezeBertModel", embedding_size=32, q_groups=2, k_groups=2, v_groups=2,
        intermediate_groups=2, output_groups=2,
    ),
    "esm": _text("EsmModel", position_embedding_type="rotary", mask_token_id=3),
    "eurobert": _text("EuroBertModel", num_key_value_heads=2),
    "xlnet": Recipe(
        "XLNetModel",
        {"vocab_size": WORDS, "d_model": 32, "n_layer": 2, "n_head": 4, "d_inner": 64},
        _TYPED, _EXAMPLE, _STATES, {"use_mems": False}, _TYPES,
    ),
    "fnet": Recipe(
        "FNetModel", _SIZE,
        {"input_ids": "int64[batch,seq]", "token_type_ids": "int64[batch,seq]"},
        _EXAMPLE, _STATES, below=_TYPES,
    ),
}  # fmt: skip

TRANSLATORS = {
    "bart": _translating("BartForConditionalGeneration"),
    "marian": _translating("MarianMTModel"),
    "m2m100": _translating("M2M100ForConditionalGeneration"),
    "pegasus": _translating("PegasusForConditionalGeneration"),
}
_LAYOUT = Recipe(
    "LayoutLMModel",
    _SIZE | {"max_2d_position_embeddings": 128},
    _TYPED | {"bbox": "int64[batch,seq,4]"},
    _EXAMPLE,
    _STATES,
    below=_TYPES | {"bbox": 1},
)


def _all() -> Iterator[Case]:
    for name, recipe in ENCODERS.items():
        yield from cases(name, recipe, DIMS, POINTS)
    yield from cases("layoutlm", _LAYOUT, DIMS, POINTS, feeds=_boxed)
    for name, recipe in TRANSLATORS.items():
        yield from cases(
            name,
            recipe,
            DIMS | {"target": "1:64"},
            sizes("batch seq target", (1, 1, 1), (3, 7, 13), (2, 32, 1), (5, 61, 31), (8, 96, 64)),
        )


CASES = tuple(_all())

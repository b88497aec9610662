"""Models of sound, from small configs with random weights."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.random import Generator

from tests.zoo.case import SPREAD, Feed, Sizes, sizes
from tests.zoo.exporting import Program, both

if TYPE_CHECKING:
    from torch import nn

WORDS, WIDTH, HEADS, LAYERS = 500, 32, 4, 2
FRAMES = 100
_STEPS = {"batch": "1:4", "samples": "400:16000"}
_STEP_POINTS = sizes("batch samples", (1, 400), (2, 719), (3, 7919), (4, 400), (1, 16000))


def wav2vec2() -> Program:
    """Wav2Vec2 with its CTC head, over waves of one length."""
    return _wav2vec2(("input_values",), "group")


def wav2vec2_masked() -> Program:
    """Wav2Vec2 with layer norms, over waves of several lengths that their mask tells."""
    return _wav2vec2(("input_values", "attention_mask"), "layer")


def whisper_encoder() -> Program:
    """Whisper's encoder, whose position embeddings fix the length."""
    import torch

    from tests.zoo.wrapping import Positional

    axes = {"input_features": {0: "batch"}}
    module = Positional(_whisper().get_encoder(), ("input_features",), ("last_hidden_state",))
    return Program(
        module, (torch.randn(2, 80, 2 * FRAMES),), ("input_features",), ("last_hidden_state",), axes
    )


def whisper_decoder() -> Program:
    """Whisper's decoder over a whole text: logits from tokens and the encoder's states."""
    import torch

    from tests.zoo.wrapping import WhisperDecoder

    inputs = ("input_ids", "encoder_hidden_states")
    args = (torch.ones(2, 5, dtype=torch.int64), torch.randn(2, 9, WIDTH))
    axes = {"input_ids": {0: "batch", 1: "seq"}, "encoder_hidden_states": {0: "batch", 1: "source"}}
    return Program(WhisperDecoder(_whisper(), 0), args, inputs, ("logits",), axes)


def whisper_decoder_past() -> Program:
    """Whisper's decoder over the tokens after a past, with the keys and values of the encoder's
    states at hand.
    """
    import torch

    from tests.zoo.wrapping import WhisperDecoder

    parts = [f"{layer}_{part}" for layer in range(LAYERS) for part in ("key", "value")]
    past, cross, present = (
        [f"{word}_{part}" for part in parts] for word in ("past", "cross", "present")
    )
    ids = torch.ones(2, 3, dtype=torch.int64)
    args = (
        ids,
        *(
            torch.randn(2, HEADS, length, WIDTH // HEADS)
            for length, names in ((5, past), (9, cross))
            for _ in names
        ),
    )
    axes = {"input_ids": {0: "batch", 1: "seq"}}
    axes |= {
        name: {0: "batch", 2: length}
        for length, names in (("past", past), ("source", cross))
        for name in names
    }
    return Program(
        WhisperDecoder(_whisper(), LAYERS),
        args,
        ("input_ids", *past, *cross),
        ("logits", *present),
        axes,
    )


def _whisper() -> "nn.Module":
    from transformers import WhisperConfig, WhisperForConditionalGeneration

    sides: dict[str, Any] = {}
    for side in ("encoder", "decoder"):
        sides |= {f"{side}_layers": LAYERS, f"{side}_attention_heads": HEADS, f"{side}_ffn_dim": 64}
    config = WhisperConfig(
        vocab_size=WORDS,
        d_model=WIDTH,
        max_source_positions=FRAMES,
        attn_implementation="eager",
        init_std=SPREAD,
        **sides,
        **_SPECIAL,
    )
    return WhisperForConditionalGeneration(config)


_SPECIAL = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 3}


def _wav2vec2(inputs: Sequence[str], norm: str) -> Program:
    import torch
    from transformers import Wav2Vec2Config, Wav2Vec2ForCTC

    from tests.zoo.wrapping import Positional

    config = Wav2Vec2Config(
        hidden_size=WIDTH,
        num_hidden_layers=LAYERS,
        num_attention_heads=HEADS,
        intermediate_size=64,
        conv_dim=(16,) * 7,
        num_conv_pos_embeddings=16,
        num_conv_pos_embedding_groups=4,
        feat_extract_norm=norm,
        initializer_range=SPREAD,
        attn_implementation="eager",
    )
    args = (torch.randn(2, 4000), torch.ones(2, 4000, dtype=torch.int64))
    axes = {name: {0: "batch", 1: "samples"} for name in inputs}
    return Program(
        Positional(Wav2Vec2ForCTC(config), inputs, ("logits",)),
        args[: len(inputs)],
        inputs,
        ("logits",),
        axes,
    )


def _masked_waves(point: Sizes, generator: Generator) -> Feed:
    """`attention_mask`: waves that end after at least one frame."""
    ends = generator.integers(400, point["samples"] + 1, [point["batch"], 1])
    return {"attention_mask": np.arange(point["samples"]) < ends}


_DECODER = {"batch": "1:4", "seq": "1:64", "source": "1:100"}

CASES = (
    *both("wav2vec2", wav2vec2, _STEPS, _STEP_POINTS),
    *both("wav2vec2_masked", wav2vec2_masked, _STEPS, _STEP_POINTS, feeds=_masked_waves),
    *both(
        "whisper_encoder",
        whisper_encoder,
        {"batch": "1:8"},
        sizes("batch", (1,), (2,), (3,), (7,), (8,)),
    ),
    *both(
        "whisper_decoder",
        whisper_decoder,
        _DECODER,
        sizes("batch seq source", (1, 1, 1), (2, 7, 31), (3, 64, 1), (4, 1, 100), (4, 64, 97)),
        draw={"input_ids": WORDS},
    ),
    *both(
        "whisper_decoder_past",
        whisper_decoder_past,
        {**_DECODER, "past": "0:64"},
        sizes(
            "batch seq source past",
            (1, 1, 1, 0),
            (2, 7, 31, 13),
            (3, 64, 1, 1),
            (4, 1, 100, 64),
            (4, 64, 97, 61),
        ),
        draw={"input_ids": WORDS},
    ),
)

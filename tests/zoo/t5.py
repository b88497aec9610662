"""T5's encoder and decoder, from a small config with random weights."""

from typing import TYPE_CHECKING, Any

from numpy.random import Generator

from tests.zoo.case import Feed, Sizes, sizes
from tests.zoo.exporting import Program, both
from tests.zoo.generative import DRAW, LAYERS, PROMPTS, WORDS, ids, past_names
from tests.zoo.packaged import masked_rows

if TYPE_CHECKING:
    from transformers import T5Config

_TEXT = ("input_ids", "attention_mask")


def t5_encoder() -> Program:
    """T5's encoder, with its buckets of relative positions."""
    import torch
    from transformers import T5EncoderModel

    from tests.zoo.wrapping import Positional

    args = (ids(2, 7), torch.ones(2, 7, dtype=torch.int64))
    return Program(
        Positional(T5EncoderModel(_t5()), _TEXT, ("last_hidden_state",)),
        args,
        _TEXT,
        ("last_hidden_state",),
        {name: {0: "batch", 1: "seq"} for name in _TEXT},
    )


def t5_decoder() -> Program:
    """T5's decoder over a whole answer."""
    from transformers import T5ForConditionalGeneration

    from tests.zoo.decoding import AfterEncoder

    inputs, args, axes = _answers()
    return Program(AfterEncoder(T5ForConditionalGeneration(_t5())), args, inputs, ("logits",), axes)


def t5_decoder_past() -> Program:
    """T5's decoder over the tokens after a past."""
    import torch
    from transformers import T5ForConditionalGeneration

    from tests.zoo.decoding import ContinuingAfterEncoder

    inputs, args, axes = _answers()
    own, crossed = past_names("past"), past_names("crossed")
    past = (*(torch.randn(2, 4, 6, 16) for _ in own), *(torch.randn(2, 4, 7, 16) for _ in crossed))
    axes |= {
        name: {0: "batch", 2: length}
        for names, length in ((own, "past"), (crossed, "source"))
        for name in names
    }
    module = ContinuingAfterEncoder(T5ForConditionalGeneration(_t5()))
    return Program(
        module, (*args, *past), (*inputs, *own, *crossed), ("logits", *past_names("present")), axes
    )


def _t5() -> "T5Config":
    from transformers import T5Config

    return T5Config(
        vocab_size=WORDS,
        d_model=64,
        d_kv=16,
        d_ff=128,
        num_layers=LAYERS,
        num_heads=4,
        attn_implementation="eager",
    )


def _answers() -> tuple[tuple[str, ...], tuple[Any, ...], dict[str, dict[int, str]]]:
    """Names, examples and axes of what T5's decoder takes."""
    import torch

    inputs = ("decoder_input_ids", "encoder_hidden_states", "attention_mask")
    args = (ids(2, 5), torch.randn(2, 7, 64), torch.ones(2, 7, dtype=torch.int64))
    return (
        inputs,
        args,
        {
            inputs[0]: {0: "batch", 1: "seq"},
            **{name: {0: "batch", 1: "source"} for name in inputs[1:]},
        },
    )


def _masked_source(point: Sizes, generator: Generator) -> Feed:
    return masked_rows({"batch": point["batch"], "seq": point["source"]}, generator)


_ANSWERS = sizes("batch seq source", (1, 1, 1), (2, 1, 101), (3, 64, 31), (7, 13, 1), (8, 64, 101))
_STEPS = sizes(
    "batch seq past source",
    (1, 1, 0, 1),
    (2, 1, 1, 101),
    (3, 32, 0, 31),
    (7, 13, 53, 1),
    (8, 32, 101, 101),
)

CASES = (
    *both("t5_encoder", t5_encoder, *PROMPTS, draw=DRAW, feeds=masked_rows),
    *both(
        "t5_decoder",
        t5_decoder,
        {"batch": "1:8", "seq": "1:64", "source": "1:101"},
        _ANSWERS,
        draw=DRAW,
        feeds=_masked_source,
    ),
    *both(
        "t5_decoder_past",
        t5_decoder_past,
        {"batch": "1:8", "seq": "1:32", "past": "0:101", "source": "1:101"},
        _STEPS,
        draw=DRAW,
        feeds=_masked_source,
    ),
)

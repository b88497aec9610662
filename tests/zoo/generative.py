"""Language models with and without a past, from small configs with random weights."""

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.random import Generator

from tests.zoo.case import SPREAD, Feed, Sizes, sizes
from tests.zoo.exporting import Program, both

if TYPE_CHECKING:
    from torch import nn

WORDS = 97
LAYERS = 2
_TEXT = ("input_ids", "attention_mask")
_SMALL = {"vocab_size": WORDS, "attn_implementation": "eager", "initializer_range": SPREAD}
_GROUPED = {
    "hidden_size": 64,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
} | _SMALL


def gpt2() -> Program:
    """GPT-2 over whole prompts."""
    return _prompts(_gpt2())


def gpt2_past() -> Program:
    """GPT-2 over the tokens after a past; the length of the mask is an axis of its own."""
    return _after_past(_gpt2(), 4)


def llama() -> Program:
    """Llama, two query heads to each of keys, over whole prompts."""
    return _prompts(_llama())


def llama_past() -> Program:
    """Llama over the tokens after a past."""
    return _after_past(_llama(), 2)


def mixtral() -> Program:
    """A mixture of four experts, two to a token, each over the tokens that chose it."""
    from tests.zoo.moe import ROUTED

    return _prompts(_mixtral(ROUTED))


def mixtral_batched() -> Program:
    """The same by transformers' own way to export it: every token gathers its experts' weights."""
    return _prompts(_mixtral("batched_mm"))


def mamba() -> Program:
    """Mamba, its state carried from step to step by a loop."""
    from tests.zoo.mamba import in_turn

    return _mamba(in_turn)


def mamba_associative() -> Program:
    """Mamba, its states made of their neighbours' in seven rounds."""
    from tests.zoo.mamba import doubling

    return _mamba(doubling)


def _gpt2() -> "nn.Module":
    from transformers import GPT2Config, GPT2LMHeadModel

    return GPT2LMHeadModel(
        GPT2Config(n_positions=256, n_embd=64, n_layer=LAYERS, n_head=4, **_SMALL)
    )


def _llama() -> "nn.Module":
    from transformers import LlamaConfig, LlamaForCausalLM

    return LlamaForCausalLM(LlamaConfig(intermediate_size=128, **_GROUPED))


def _mixtral(experts: str) -> "nn.Module":
    from transformers import MixtralConfig, MixtralForCausalLM

    sizes: dict[str, Any] = {
        "intermediate_size": 96,
        "num_local_experts": 4,
        "num_experts_per_tok": 2,
    }
    return MixtralForCausalLM(MixtralConfig(experts_implementation=experts, **sizes, **_GROUPED))


def _mamba(recurrence: Any) -> Program:
    from transformers import MambaConfig, MambaForCausalLM

    from tests.zoo.mamba import Mamba

    config = MambaConfig(
        vocab_size=WORDS,
        hidden_size=64,
        intermediate_size=128,
        state_size=8,
        num_hidden_layers=LAYERS,
    )
    module = Mamba(MambaForCausalLM(config), recurrence)
    return Program(
        module, (ids(2, 7),), ("input_ids",), ("logits",), {"input_ids": {0: "batch", 1: "seq"}}
    )


def _prompts(model: "nn.Module") -> Program:
    import torch

    from tests.zoo.wrapping import Positional

    args = (ids(2, 7), torch.ones(2, 7, dtype=torch.int64))
    axes = {name: {0: "batch", 1: "seq"} for name in _TEXT}
    return Program(
        Positional(model, _TEXT, ("logits",), {"use_cache": False}), args, _TEXT, ("logits",), axes
    )


def _after_past(model: "nn.Module", heads: int) -> Program:
    """Keys and values are [batch, heads, past, 16]."""
    import torch

    from tests.zoo.decoding import Continuing

    past, present = past_names("past"), past_names("present")
    args = (
        ids(2, 3),
        torch.ones(2, 8, dtype=torch.int64),
        *(torch.randn(2, heads, 5, 16) for _ in past),
    )
    axes = {"input_ids": {0: "batch", 1: "seq"}, "attention_mask": {0: "batch", 1: "total"}}
    axes |= {name: {0: "batch", 2: "past"} for name in past}
    return Program(Continuing(model), args, (*_TEXT, *past), ("logits", *present), axes)


def past_names(word: str) -> tuple[str, ...]:
    """`past_0_key`, `past_0_value`, `past_1_key`, ..."""
    return tuple(f"{word}_{layer}_{part}" for layer in range(LAYERS) for part in ("key", "value"))


def ids(batch: int, length: int) -> Any:
    """Random tokens, int64[batch, length]."""
    import torch

    return torch.randint(0, WORDS, (batch, length))


def padded_prompts(point: Sizes, generator: Generator) -> Feed:
    """`attention_mask`: rows that begin at some place of past and prompt, as those of prompts of
    unequal lengths do; the first is whole.
    """
    total = point.get("past", 0) + point["seq"]
    starts = generator.integers(0, total, [point["batch"], 1])
    starts[0] = 0
    return {"attention_mask": np.arange(total) >= starts}


PROMPTS = (
    {"batch": "1:8", "seq": "1:128"},
    sizes("batch seq", (1, 1), (2, 1), (3, 13), (7, 53), (8, 128)),
)
_PASTS = sizes("batch seq past", (1, 1, 0), (2, 1, 1), (3, 64, 0), (7, 13, 53), (8, 64, 101))
_PAST_DIMS = {"batch": "1:8", "seq": "1:64", "past": "0:101"}
DRAW = {"input_ids": WORDS, "decoder_input_ids": WORDS}

CASES = (
    *(
        case
        for make in (gpt2, llama, mixtral, mixtral_batched)
        for case in both(make.__name__, make, *PROMPTS, draw=DRAW, feeds=padded_prompts)
    ),
    *both("gpt2_past", gpt2_past, _PAST_DIMS, _PASTS, draw=DRAW, feeds=padded_prompts),
    *both(
        "llama_past",
        llama_past,
        _PAST_DIMS,
        _PASTS,
        draw=DRAW,
        feeds=padded_prompts,
        inputs={"attention_mask": "int64[batch,past+seq]"},
    ),
    *(
        case
        for make in (mamba, mamba_associative)
        for case in both(make.__name__, make, *PROMPTS, draw=DRAW)
    ),
)

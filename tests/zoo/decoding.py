"""Decoders as modules of positional tensors: keys and values of the past among them, or the states
of an encoder.
"""

from collections.abc import Iterator

from torch import Tensor, nn
from transformers import Cache, DynamicCache, EncoderDecoderCache


class Continuing(nn.Module):
    """A causal language model over the tokens after a past: logits, then every layer's keys and
    values, past included.
    """

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor, *past: Tensor
    ) -> tuple[Tensor, ...]:
        created = self.model(
            input_ids=input_ids,
            attention_mask=attention_mask,
            past_key_values=_cache(past),
            use_cache=True,
        )
        return created.logits, *_parts(created.past_key_values)


class AfterEncoder(nn.Module):
    """The decoder of an encoder-decoder model, without a past."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(
        self, decoder_input_ids: Tensor, encoder_hidden_states: Tensor, attention_mask: Tensor
    ) -> Tensor:
        states = {"encoder_outputs": (encoder_hidden_states,), "attention_mask": attention_mask}
        logits: Tensor = self.model(
            decoder_input_ids=decoder_input_ids, use_cache=False, **states
        ).logits
        return logits


class ContinuingAfterEncoder(nn.Module):
    """The same after a past: each layer's own keys and values, then those that it made of the
    encoder's states.

    Gives logits and each layer's own keys and values, past included.
    """

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(
        self,
        decoder_input_ids: Tensor,
        encoder_hidden_states: Tensor,
        attention_mask: Tensor,
        *past: Tensor,
    ) -> tuple[Tensor, ...]:
        own, crossed = past[: len(past) // 2], past[len(past) // 2 :]
        created = self.model(
            decoder_input_ids=decoder_input_ids,
            encoder_outputs=(encoder_hidden_states,),
            attention_mask=attention_mask,
            past_key_values=EncoderDecoderCache(_cache(own), _cache(crossed)),
            use_cache=True,
        )
        return created.logits, *_parts(created.past_key_values.self_attention_cache)


def _cache(past: tuple[Tensor, ...]) -> DynamicCache:
    """The names of keys and values in turn."""
    return DynamicCache(list(zip(past[::2], past[1::2], strict=True)))


def _parts(cache: Cache) -> Iterator[Tensor]:
    for layer in cache.layers:
        yield from (layer.keys, layer.values)

"""Wraps a transformers model as a module of positional tensors, as both of torch's exporters take
one.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from transformers import DynamicCache, EncoderDecoderCache


class Positional(nn.Module):
    """`model` with its arguments named `inputs`, in order; returns the outputs named `outputs`, or
    what `model` does where there are no names, None left out.

    fixed: further arguments.
    """

    def __init__(
        self,
        model: nn.Module,
        inputs: Sequence[str],
        outputs: Sequence[str],
        fixed: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__()
        self.model = model
        self.inputs, self.outputs, self.fixed = tuple(inputs), tuple(outputs), dict(fixed or {})

    def forward(self, *arguments: Tensor) -> tuple[Tensor, ...]:
        created = self.model(**dict(zip(self.inputs, arguments, strict=True)), **self.fixed)
        if not self.outputs:
            results = created if isinstance(created, (tuple, list)) else (created,)
            return tuple(result for result in results if result is not None)
        return tuple(created[name] for name in self.outputs)


class WhisperDecoder(nn.Module):
    """Whisper's decoder and head.

    Where `layers` is 0: tokens and the encoder's states to logits. Else: tokens, then every layer's
    past key and value, then those of the encoder's states, to the logits of the tokens and the keys
    and values that the next tokens need.
    """

    def __init__(self, whisper: nn.Module, layers: int) -> None:
        super().__init__()
        self.decoder, self.head, self.layers = (
            whisper.get_decoder(),
            whisper.get_output_embeddings(),
            layers,
        )

    def forward(self, input_ids: Tensor, *arguments: Tensor) -> tuple[Tensor, ...]:
        if not self.layers:
            # A mask of its own keeps transformers from looking for packed texts, whose operators
            # one exporter lacks.
            mask = torch.ones_like(input_ids)
            created = self.decoder(
                input_ids=input_ids,
                attention_mask=mask,
                encoder_hidden_states=arguments[0],
                use_cache=False,
            )
            return (self.head(created.last_hidden_state),)
        pairs = list(zip(arguments[::2], arguments[1::2], strict=True))
        cache = EncoderDecoderCache(
            DynamicCache(pairs[: self.layers]), DynamicCache(pairs[self.layers :])
        )
        # Its mere presence asks for attention to the encoder, whose keys and values are all in the
        # cache.
        states = arguments[-1].new_zeros(1)
        created = self.decoder(
            input_ids=input_ids, encoder_hidden_states=states, past_key_values=cache, use_cache=True
        )
        retained = created.past_key_values.self_attention_cache.layers
        return self.head(created.last_hidden_state), *(
            part for layer in retained for part in (layer.keys, layer.values)
        )

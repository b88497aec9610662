"""Mamba with a scan whose length stays open: transformers' own loop over the sequence is unrolled
by every export.
"""

from collections.abc import Callable
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor, nn
from torch._higher_order_ops.scan import scan
from transformers.models.mamba import modeling_mamba

Recurrence = Callable[[Tensor, Tensor, Tensor], Tensor]
"""Of decay[s, b, c, n], drive[s, b, c, n] and read[s, b, 1, n]: the sum over n of read[s] *
state[s].

state[s] = decay[s] * state[s - 1] + drive[s], from zero.
"""


class Mamba(nn.Module):
    """The logits of a Mamba language model whose selective scan runs by `recurrence`."""

    def __init__(self, model: nn.Module, recurrence: Recurrence) -> None:
        super().__init__()
        self.model, self.recurrence = model, recurrence

    def forward(self, input_ids: Tensor) -> Tensor:
        with patch.object(modeling_mamba, "mamba_selective_scan", self._selective_scan):
            logits: Tensor = self.model(input_ids=input_ids, use_cache=False).logits
        return logits

    def _selective_scan(
        self,
        hidden: Tensor,
        step: Tensor,
        a: Tensor,
        b: Tensor,
        c: Tensor,
        *,
        z: Tensor,
        delta_bias: Tensor,
        **more: Any,
    ) -> Tensor:
        """Compute `mamba_selective_scan` of transformers, with softplus and no last state; hidden,
        step, z are [batch, channel, seq].
        """
        step = nn.functional.softplus(step + delta_bias[:, None]).permute(2, 0, 1)[..., None]
        decay = torch.exp(a * step)
        drive = step * b.permute(2, 0, 1)[:, :, None] * hidden.permute(2, 0, 1)[..., None]
        created = self.recurrence(decay, drive, c.permute(2, 0, 1)[:, :, None]).permute(1, 2, 0)
        return (created + hidden * more["D"][:, None]) * nn.functional.silu(z)


def in_turn(decay: Tensor, drive: Tensor, read: Tensor) -> Tensor:
    """Step by step: torch's scan where torch.export traces it, else a scripted loop."""
    return (
        _scanned(decay, drive, read)
        if torch.compiler.is_exporting()
        else _looped(decay, drive, read)
    )


def _scanned(decay: Tensor, drive: Tensor, read: Tensor) -> Tensor:
    def step(state: Tensor, item: tuple[Tensor, Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        state = item[0] * state + item[1]
        return state, (state * item[2]).sum(-1)

    created: Tensor = scan(step, torch.zeros_like(drive[0]), (decay, drive, read))[1]
    return created


@torch.jit.script
def _looped(decay: Tensor, drive: Tensor, read: Tensor) -> Tensor:
    state = torch.zeros_like(drive[0])
    created = torch.zeros_like(drive[:, :, :, 0])
    for index in range(drive.size(0)):
        state = decay[index] * state + drive[index]
        created[index] = (state * read[index]).sum(-1)
    return created


def doubling(decay: Tensor, drive: Tensor, read: Tensor) -> Tensor:
    """By combining neighbours at distance 1, 2, 4 to 64 (Hillis and Steele 1986), so for at most
    128 steps.
    """
    length = drive.size(0)
    for distance in (1, 2, 4, 8, 16, 32, 64):
        before, gain = (
            _later(value, distance, start)[:length] for value, start in ((drive, 0.0), (decay, 1.0))
        )
        drive, decay = drive + decay * before, decay * gain
    return (drive * read).sum(-1)


def _later(value: Tensor, distance: int, start: float) -> Tensor:
    return nn.functional.pad(value, (0, 0, 0, 0, 0, 0, distance, 0), value=start)

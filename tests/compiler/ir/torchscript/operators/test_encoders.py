"""Fused encoder layers, as torch traces them in evaluation mode."""

import pytest
import torch
from torch import nn

from tests.compiler.ir.torchscript.running import check

FLOATS = "float32"


class Masked(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, activation="gelu")

    def forward(self, x: torch.Tensor, padding: torch.Tensor) -> torch.Tensor:
        padding = padding & (torch.arange(padding.size(1)) > 0)
        return self.layer(x, src_key_padding_mask=padding)


@pytest.mark.parametrize("first", [True, False])
def test_layer(first: bool) -> None:
    torch.manual_seed(0)
    call = check(
        nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, norm_first=first),
        (FLOATS, "n,n+1,8"),
    )
    assert call.imported.outputs[0].text == "float32[n,n + 1,8]"


def test_padding() -> None:
    torch.manual_seed(0)
    check(Masked(), (FLOATS, "n,n+1,8"), ("bool", "n,n+1"))


def test_encoder_and_decoder() -> None:
    torch.manual_seed(0)
    check(nn.Transformer(8, 2, 1, 1, 16, batch_first=True), (FLOATS, "n,n+1,8"), (FLOATS, "n,n,8"))

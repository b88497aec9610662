"""Fused encoder layers, as torch traces them in evaluation mode."""

import pytest
import torch
from torch import nn

from compiler.errors import ImportFailed
from tests.compiler.ir.torchscript.running import check, import_module, script

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


@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("heads", [1, 2])
@pytest.mark.parametrize("batch_first", [True, False])
def test_scripted_layer(first: bool, heads: int, batch_first: bool) -> None:
    """torch's own choice between its fused layer and the modules, which asks for heads, layout,
    devices, autocast and gradients, is made as in inference.
    """
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(
        8, heads, 16, batch_first=batch_first, norm_first=first, activation="gelu"
    )
    check_in_inference(script(layer), (FLOATS, "n,n+1,8"))


@pytest.mark.parametrize("second", [("bool", "n+1,n+1"), ("bool", "n,n+1")])
def test_scripted_layer_with_a_mask(second: tuple[str, str]) -> None:
    """A mask of positions for all, or of each entry's own; no row is masked as a whole."""

    class Layer(nn.Module):
        def __init__(self, of_all: bool) -> None:
            super().__init__()
            self.layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
            self.of_all = of_all

        def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
            mask = mask & (torch.arange(mask.size(1)) > 0)
            if self.of_all:
                return self.layer(x, src_mask=mask)
            return self.layer(x, src_key_padding_mask=mask)

    torch.manual_seed(0)
    layer = script(Layer(second[1] == "n+1,n+1"))
    check_in_inference(layer, (FLOATS, "n,n+1,8"), second)


@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("batch_first", [True, False])
def test_scripted_decoder_layer(first: bool, batch_first: bool) -> None:
    torch.manual_seed(0)
    layer = nn.TransformerDecoderLayer(8, 2, 16, batch_first=batch_first, norm_first=first)
    target, memory = ("n,n+1,8", "n,2*n,8") if batch_first else ("n+1,n,8", "2*n,n,8")
    check_in_inference(script(layer), (FLOATS, target), (FLOATS, memory))


def test_scripted_encoder_and_decoder() -> None:
    torch.manual_seed(0)
    model = nn.Transformer(8, 2, 2, 2, 16, batch_first=True)
    check_in_inference(script(model), (FLOATS, "n,n+1,8"), (FLOATS, "n,n,8"))


def test_nested_tensors_are_refused_with_what_to_change() -> None:
    model = script(nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), 1))
    specs = {"src": "float32[b,s,8]", "src_key_padding_mask": "bool[b,s]"}
    with pytest.raises(ImportFailed, match="enable_nested_tensor=False"):
        import_module(model, specs)


def check_in_inference(module: torch.jit.ScriptModule, *specs: tuple[str, str]) -> None:
    with torch.inference_mode():
        check(module, *specs)


def test_encoder_and_decoder() -> None:
    torch.manual_seed(0)
    check(nn.Transformer(8, 2, 1, 1, 16, batch_first=True), (FLOATS, "n,n+1,8"), (FLOATS, "n,n,8"))

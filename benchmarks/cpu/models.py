"""Models at the size that people use, which the zoo has only as thin ones: their files are exported
once, with seeded weights, and kept among the zoo's.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.random import Generator

from tests.zoo.case import Case, Exporter, Feed, Sizes, sizes
from tests.zoo.exporting import Export, Program, both
from tests.zoo.graph import INPUTS, edges_of
from tests.zoo.recipes import Recipe, cases

if TYPE_CHECKING:
    from torch import nn

NODE, EDGE, LAYERS = 128, 32, 3
"""Numbers of a node, numbers of an edge, and layers of the graph networks."""

_PIXELS = "float32[batch,3,height,width]"
_IMAGE = {"batch": 2, "height": 96, "width": 128}
_OPEN = {"batch": "1:8", "height": "32:320", "width": "32:320"}
_SINGLE, _BATCH, _WIDE = (1, 224, 224), (4, 224, 224), (1, 192, 256)
_TEXT = {"input_ids": "int64[batch,seq]", "attention_mask": "int64[batch,seq]"}
_TYPED = _TEXT | {"token_type_ids": "int64[batch,seq]"}
_PROMPT = {"batch": 2, "seq": 9}
_LLAMA = {
    "vocab_size": 32000,
    "hidden_size": 768,
    "num_hidden_layers": 8,
    "num_attention_heads": 12,
    "num_key_value_heads": 4,
    "intermediate_size": 2048,
    "max_position_embeddings": 1024,
}


def _vision(model: str, **size: Any) -> Recipe:
    return Recipe(model, size, {"x": _PIXELS}, _IMAGE, package="torchvision")


def _timm(model: str) -> Recipe:
    return Recipe("create_model", {"model_name": model}, {"x": _PIXELS}, _IMAGE, package="timm")


IMAGES: Mapping[str, tuple[Recipe, tuple[tuple[int, int, int], ...]]] = {
    "mobilenet_v2": (_vision("mobilenet_v2"), (_SINGLE, _BATCH)),
    "mobilenet_v3_large": (_vision("mobilenet_v3_large"), (_SINGLE, _WIDE)),
    "mobilenet_v3_small": (_vision("mobilenet_v3_small"), (_SINGLE, _BATCH)),
    "shufflenet_v2": (_vision("shufflenet_v2_x1_0"), (_SINGLE,)),
    "mnasnet": (_vision("mnasnet1_0"), (_SINGLE,)),
    "squeezenet": (_vision("squeezenet1_1"), (_SINGLE,)),
    "efficientnet_b0": (_vision("efficientnet_b0"), (_SINGLE, _WIDE)),
    "regnet_y_400mf": (_vision("regnet_y_400mf"), (_SINGLE,)),
    "googlenet": (
        _vision("googlenet", aux_logits=False, init_weights=False, transform_input=True),
        (_SINGLE,),
    ),
    "densenet121": (_vision("densenet121"), (_SINGLE,)),
    "convnext_tiny": (_vision("convnext_tiny"), (_SINGLE,)),
    "lraspp_mobilenet_v3": (
        replace(
            _vision("segmentation.lraspp_mobilenet_v3_large", weights_backbone=None),
            inputs={"input": _PIXELS},
            outputs=("out",),
        ),
        ((1, 320, 320), _WIDE),
    ),
    "mobilenetv4_conv_small": (_timm("mobilenetv4_conv_small"), (_SINGLE,)),
    "ghostnet_100": (_timm("ghostnet_100"), (_SINGLE,)),
    "repvit_m0_9": (_timm("repvit_m0_9"), (_SINGLE,)),
}
"""Each with its batches, heights and widths."""

_SWIN = Recipe("swin_t", {}, {"x": "float32[batch,3,224,224]"}, {"batch": 2}, package="torchvision")
_WHISPER = Recipe(
    "models.whisper.modeling_whisper.WhisperEncoder",
    {
        "d_model": 384,
        "encoder_layers": 4,
        "encoder_attention_heads": 6,
        "encoder_ffn_dim": 1536,
        "max_source_positions": 1500,
    },
    {"input_features": "float32[batch,80,3000]"},
    {"batch": 2},
    ("last_hidden_state",),
)
_WAV2VEC2 = Recipe(
    "Wav2Vec2Model",
    {},
    {"input_values": "float32[batch,samples]"},
    {"batch": 2, "samples": 4000},
    ("last_hidden_state",),
)
_POOLED = ("last_hidden_state", "pooler_output")
_BERT = Recipe(
    "BertModel", {}, _TYPED, _PROMPT, _POOLED, below={"input_ids": 30522, "token_type_ids": 2}
)
_DISTILBERT = Recipe("DistilBertModel", {}, _TEXT, _PROMPT, _POOLED[:1], below={"input_ids": 30522})
_T5 = Recipe("T5EncoderModel", {}, _TEXT, _PROMPT, _POOLED[:1], below={"input_ids": 32128})
_DECODER = Recipe(
    "LlamaForCausalLM",
    _LLAMA,
    _TEXT,
    _PROMPT,
    ("logits",),
    {"use_cache": False},
    below={"input_ids": 32000},
)


def message_passing() -> Program:
    """The zoo's network of messages, with NODE numbers a node."""
    from tests.zoo.networks import MessagePassing

    return _graph(MessagePassing(NODE, EDGE, LAYERS))


def graph_attention() -> Program:
    """The zoo's network of attention over edges, with NODE numbers a node."""
    from tests.zoo.networks import GraphAttention

    return _graph(GraphAttention(NODE, EDGE, LAYERS))


def _graph(module: nn.Module) -> Program:
    import torch

    from tests.zoo.weights import keep_signals

    args = (torch.randn(5, NODE), torch.randint(0, 5, (2, 11)), torch.randn(11, EDGE))
    keep_signals(module, args)
    axes = {"nodes": {0: "nodes"}, "edges": {1: "edges"}, "features": {0: "edges"}}
    return Program(module, args, INPUTS, ("states", "whole"), axes)


def _images() -> Iterator[Case]:
    for name, (recipe, points) in IMAGES.items():
        yield from cases(name, recipe, _OPEN, sizes("batch height width", *points))
    yield from cases("swin_t", _SWIN, {"batch": "1:8"}, sizes("batch", (1,)))


def _texts() -> Iterator[Case]:
    dims = {"batch": "1:16", "seq": "1:512"}
    rows: dict[str, tuple[Recipe, tuple[tuple[int, int], ...]]] = {
        "bert_base": (_BERT, ((1, 128), (8, 100), (3, 37))),
        "distilbert": (_DISTILBERT, ((1, 64), (2, 250))),
        "t5_small_encoder": (_T5, ((1, 48), (4, 75))),
        "llama_768": (_DECODER, ((1, 128), (1, 23))),
    }
    for name, (recipe, points) in rows.items():
        yield from cases(name, recipe, dims, sizes("batch seq", *points), feeds=_unpadded)


def _unpadded(point: Sizes, generator: Generator) -> Feed:
    """`attention_mask`: texts of one length."""
    return {"attention_mask": np.ones([point["batch"], point["seq"]])}


def _sounds() -> Iterator[Case]:
    yield from cases("whisper_tiny_encoder", _WHISPER, {"batch": "1:8"}, sizes("batch", (1,)))
    waves = {"batch": "1:4", "samples": "400:64000"}
    yield from cases("wav2vec2_base", _WAV2VEC2, waves, sizes("batch samples", (1, 16000)))


def _graphs() -> Iterator[Case]:
    dims = {"nodes": "1:5000", "edges": "0:20000"}
    points: tuple[Sizes, ...] = sizes("nodes edges", (200, 997), (4000, 20000))
    for make in (message_passing, graph_attention):
        name = f"{make.__name__}_{NODE}"
        yield from both(name, make, dims, points, (Exporter.TORCHSCRIPT,), feeds=edges_of)


def _here(case: Case) -> Case:
    """The case, whose export finds it in this module."""
    assert isinstance(case.export, Export)
    return replace(case, export=replace(case.export, cases=__name__))


CASES = {case.key: _here(case) for case in (*_images(), *_texts(), *_sounds(), *_graphs())}
"""By key; a case's points are its rows in the table."""

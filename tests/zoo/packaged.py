"""The models that installed packages bring, at their real sizes, and those with trained or
full-size weights that torch exports.
"""

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.random import Generator

from tests.support.models.known import package_model
from tests.zoo.case import Case, Feed, Sizes, sizes
from tests.zoo.exporting import Program, both
from tests.zoo.pages import print_pages


def minilm() -> Program:
    """all-MiniLM-L6-v2 with its trained weights."""
    import torch

    from tests.support.exports import minilm_module

    names = ("input_ids", "attention_mask", "token_type_ids")
    ids = torch.ones(2, 9, dtype=torch.int64)
    return Program(
        minilm_module(),
        (ids, torch.ones_like(ids), torch.zeros_like(ids)),
        names,
        ("last_hidden_state", "sentence_embedding"),
        {name: {0: "batch", 1: "seq"} for name in names},
    )


def resnet50() -> Program:
    """ResNet-50 with the batch, the height and the width of its images open."""
    import torch

    from tests.support.exports import resnet50_module

    axes = {"pixel_values": {0: "batch", 2: "height", 3: "width"}}
    return Program(
        resnet50_module(), (torch.randn(2, 3, 224, 192),), ("pixel_values",), ("logits",), axes
    )


def masked_rows(point: Sizes, generator: Generator) -> Feed:
    """`attention_mask`: rows of `batch` that end at some place of `seq`."""
    ends = generator.integers(1, point["seq"] + 1, [point["batch"], 1])
    return {"attention_mask": np.arange(point["seq"]) < ends}


def _rate(point: Sizes, generator: Generator) -> Feed:
    return {"sr": np.asarray(point["sr"])}


def _silero(name: str, dims: Mapping[str, str], points: tuple[Sizes, ...], **declared: Any) -> Case:
    """`sr` is a point's, or the declared constant."""
    feeds: dict[str, Any] = {} if "consts" in declared else {"feeds": _rate}
    inputs = {"input": f"float32[{','.join(dims)}]", "state": "float32[2,batch,128]"}
    return Case(
        name,
        partial(package_model, "silero_vad", f"data/{name}.onnx"),
        dims,
        points,
        inputs=inputs,
        **feeds,
        **declared,
    )


def _ppocr(file: str) -> "partial[Path]":
    return partial(package_model, "rapidocr_onnxruntime", f"models/{file}.onnx")


CASES = (
    Case(
        "ppocr_det",
        _ppocr("ch_PP-OCRv4_det_infer"),
        {"n": "1:4", "h": "32:960%32", "w": "32:960%32"},
        sizes("n h w", (1, 32, 32), (2, 352, 608), (4, 32, 960), (3, 416, 96), (1, 960, 960)),
        inputs={"x": "float32[n,3,h,w]"},
        feeds=print_pages,
    ),
    Case(
        "ppocr_rec",
        _ppocr("ch_PP-OCRv4_rec_infer"),
        {"n": "1:8", "w": "16:1280"},
        sizes("n w", (1, 16), (3, 97), (2, 331), (8, 320), (1, 1280)),
        inputs={"x": "float32[n,3,48,w]"},
    ),
    Case(
        "ppocr_cls",
        _ppocr("ch_ppocr_mobile_v2.0_cls_infer"),
        {"n": "1:8", "h": "32:96", "w": "32:384"},
        sizes("n h w", (1, 32, 32), (2, 33, 65), (3, 48, 192), (5, 61, 383), (8, 96, 384)),
        inputs={"x": "float32[n,3,h,w]"},
    ),
    Case(
        "magika",
        partial(package_model, "magika", "models/standard_v3_3/model.onnx"),
        {"batch": "1:16"},
        sizes("batch", (1,), (2,), (7,), (13,), (16,)),
        inputs={"bytes": "int32[batch,2048]"},
        draw={"bytes": 257},
    ),
    _silero(
        "silero_vad",
        {"batch": "1:16", "samples": "288:576"},
        sizes(
            "batch samples sr",
            (1, 288, 8000),
            (16, 576, 16000),
            (7, 288, 16000),
            (13, 317, 8000),
            (1, 576, 16000),
        ),
    ),
    _silero(
        "silero_vad_16k_op15",
        {"batch": "1:16", "samples": "256:640"},
        sizes("batch samples", (1, 256), (2, 576), (7, 331), (13, 577), (16, 640)),
        consts={"sr": 16000},
    ),
    _silero(
        "silero_vad_op18_ifless",
        {"batch": "1:16", "samples": "256:1536"},
        sizes(
            "batch samples sr",
            (1, 256, 8000),
            (2, 576, 16000),
            (7, 331, 8000),
            (13, 1031, 16000),
            (16, 1536, 16000),
        ),
    ),
    *both(
        "minilm",
        minilm,
        {"batch": "1:8", "seq": "1:512"},
        sizes("batch seq", (1, 1), (3, 7), (2, 128), (5, 311), (8, 512)),
        draw={"input_ids": 30522},
        feeds=masked_rows,
    ),
    *both(
        "resnet50",
        resnet50,
        {"batch": "1:4", "height": "32:320", "width": "32:320"},
        sizes(
            "batch height width",
            (1, 32, 32),
            (1, 224, 224),
            (3, 97, 131),
            (2, 320, 53),
            (4, 320, 320),
        ),
    ),
)

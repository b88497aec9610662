"""Models of images, from small configs with random weights."""

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.random import Generator

from tests.zoo.case import SPREAD, Feed, Sizes, sizes
from tests.zoo.exporting import Axes, Program, both

if TYPE_CHECKING:
    from torch import Tensor, nn

BATCHES = sizes("batch", (1,), (2,), (3,), (7,), (8,))
WORDS = 1000
_IMAGES = {"batch": "1:4", "height": "32:256", "width": "32:256"}
_IMAGE_POINTS = sizes(
    "batch height width", (1, 32, 32), (2, 97, 131), (3, 224, 160), (4, 33, 255), (1, 256, 256)
)
_OPEN: Axes = {"pixel_values": {0: "batch", 2: "height", 3: "width"}}


def vit() -> Program:
    """ViT, whose position embeddings fix its image's size."""
    from transformers import ViTConfig, ViTModel

    config = ViTConfig(image_size=64, patch_size=8, attn_implementation="eager", **_layers())
    return _images(
        ViTModel(config), ("last_hidden_state", "pooler_output"), {"pixel_values": {0: "batch"}}
    )


def vit_interpolated() -> Program:
    """ViT that resizes its position embeddings to the image."""
    from transformers import ViTConfig, ViTModel

    config = ViTConfig(image_size=64, patch_size=8, attn_implementation="eager", **_layers())
    return _images(
        ViTModel(config),
        ("last_hidden_state", "pooler_output"),
        _OPEN,
        interpolate_pos_encoding=True,
    )


def convnext() -> Program:
    """ConvNeXt with its classifier."""
    from transformers import ConvNextConfig, ConvNextForImageClassification

    config = ConvNextConfig(
        hidden_sizes=[16, 24, 32, 48],
        depths=[1, 1, 2, 1],
        num_labels=10,
        initializer_range=SPREAD,
        layer_scale_init_value=1.0,
    )
    return _images(ConvNextForImageClassification(config), ("logits",), _OPEN)


def segformer() -> Program:
    """SegFormer with its segmentation head."""
    from transformers import SegformerConfig, SegformerForSemanticSegmentation

    config = SegformerConfig(
        depths=[1, 1, 1, 1],
        hidden_sizes=[16, 32, 48, 64],
        decoder_hidden_size=32,
        num_labels=10,
        initializer_range=SPREAD,
    )
    return _images(SegformerForSemanticSegmentation(config), ("logits",), _OPEN)


def detr() -> Program:
    """DETR on a small ResNet, over images of any size that their mask covers in part."""
    import torch
    from transformers import DetrConfig, DetrForObjectDetection, ResNetConfig

    backbone = ResNetConfig(
        embedding_size=16,
        hidden_sizes=[16, 24, 32, 48],
        depths=[1, 1, 1, 1],
        layer_type="basic",
        out_features=["stage4"],
    )
    config = DetrConfig(
        backbone_config=backbone,
        d_model=32,
        encoder_layers=2,
        decoder_layers=2,
        encoder_attention_heads=4,
        decoder_attention_heads=4,
        encoder_ffn_dim=64,
        decoder_ffn_dim=64,
        num_queries=10,
        num_labels=5,
        attn_implementation="eager",
        init_std=SPREAD,
    )
    mask: Axes = {"pixel_mask": {0: "batch", 1: "height", 2: "width"}}
    axes = {**_OPEN, **mask}
    return _images(
        DetrForObjectDetection(config),
        ("logits", "pred_boxes"),
        axes,
        torch.ones(2, 96, 128, dtype=torch.int64),
    )


def clip() -> Program:
    """CLIP: images beside texts, every pair compared."""
    import torch
    from transformers import CLIPConfig, CLIPModel

    from tests.zoo.wrapping import Positional

    text = {
        **_layers(),
        "vocab_size": WORDS,
        "max_position_embeddings": 77,
        "eos_token_id": WORDS - 1,
    }
    config = CLIPConfig(
        text_config=text,
        vision_config={**_layers(), "image_size": 64, "patch_size": 16},
        projection_dim=24,
    )
    config._attn_implementation = "eager"
    inputs = ("input_ids", "attention_mask", "pixel_values")
    outputs = ("logits_per_image", "text_embeds", "image_embeds")
    ids = torch.randint(0, WORDS, (3, 9))
    axes = {
        "input_ids": {0: "texts", 1: "seq"},
        "attention_mask": {0: "texts", 1: "seq"},
        "pixel_values": {0: "images"},
    }
    args = (ids, torch.ones_like(ids), torch.randn(2, 3, 64, 64))
    return Program(Positional(CLIPModel(config), inputs, outputs), args, inputs, outputs, axes)


def _masked_images(point: Sizes, generator: Generator) -> Feed:
    """`pixel_mask`: the upper left part of every image."""
    rows, columns = (
        np.arange(point[axis]) < generator.integers(1, point[axis] + 1, [point["batch"], 1])
        for axis in ("height", "width")
    )
    return {"pixel_mask": rows[:, :, None] & columns[:, None, :]}


def _texts(point: Sizes, generator: Generator) -> Feed:
    """Texts that end at some place, at their greatest token."""
    ends = generator.integers(0, point["seq"], [point["texts"], 1])
    ids = generator.integers(1, WORDS - 1, [point["texts"], point["seq"]])
    positions = np.arange(point["seq"])
    return {
        "input_ids": np.where(positions == ends, WORDS - 1, ids),
        "attention_mask": positions <= ends,
    }


def _layers() -> dict[str, Any]:
    return {
        "hidden_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "intermediate_size": 64,
        "initializer_range": SPREAD,
    }


def _images(
    model: "nn.Module", outputs: tuple[str, ...], axes: Axes, *others: "Tensor", **fixed: Any
) -> Program:
    import torch

    from tests.zoo.wrapping import Positional

    images = torch.randn(2, 3, *((96, 128) if 2 in axes["pixel_values"] else (64, 64)))
    return Program(
        Positional(model, tuple(axes), outputs, fixed),
        (images, *others),
        tuple(axes),
        outputs,
        axes,
    )


CASES = (
    *both("vit", vit, {"batch": "1:8"}, BATCHES),
    *both("vit_interpolated", vit_interpolated, _IMAGES, _IMAGE_POINTS),
    *both("convnext", convnext, _IMAGES, _IMAGE_POINTS),
    *both("segformer", segformer, _IMAGES, _IMAGE_POINTS),
    *both("detr", detr, _IMAGES, _IMAGE_POINTS, feeds=_masked_images),
    *both(
        "clip",
        clip,
        {"texts": "1:8", "images": "1:8", "seq": "1:77"},
        sizes("texts images seq", (1, 1, 1), (2, 3, 7), (5, 1, 31), (1, 8, 76), (8, 7, 77)),
        feeds=_texts,
    ),
)

"""More models of images, and of films, each from a small config of transformers."""

from collections.abc import Iterator
from typing import Any

from tests.zoo.case import Case, sizes
from tests.zoo.recipes import Recipe, cases
from tests.zoo.vision import BATCHES

_SQUARE = {"pixel_values": "float32[batch,3,64,64]"}
_ANY = {"pixel_values": "float32[batch,3,height,width]"}
_STATES = ("last_hidden_state",)
_PATCHES: dict[str, Any] = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "image_size": 64,
    "patch_size": 16,
}
_SWIN = {"image_size": 64, "embed_dim": 16, "depths": [2, 2], "num_heads": [2, 4], "window_size": 4}
_OPEN = {"batch": "1:3", "height": "32:192", "width": "32:192"}
_OPEN_POINTS = sizes(
    "batch height width", (1, 32, 32), (2, 97, 131), (3, 160, 96), (1, 33, 191), (1, 192, 192)
)
_TILED_POINTS = sizes(
    "batch height width", (1, 32, 32), (2, 96, 128), (3, 160, 96), (1, 32, 192), (1, 192, 192)
)
_TILED = {"batch": "1:3", "height": "32:192%32", "width": "32:192%32"}
_RTDETR = {
    "backbone_config": {
        "model_type": "rt_detr_resnet", "embedding_size": 16, "hidden_sizes": [16, 24, 32, 48],
        "depths": [1, 1, 1, 1], "layer_type": "basic",
        "out_features": ["stage2", "stage3", "stage4"],
    },
    "encoder_in_channels": [24, 32, 48], "encoder_hidden_dim": 32, "encoder_ffn_dim": 64,
    "encoder_attention_heads": 4, "d_model": 32, "decoder_in_channels": [32, 32, 32],
    "decoder_ffn_dim": 64, "decoder_layers": 2, "decoder_attention_heads": 4, "num_queries": 12,
    "num_labels": 5, "anchor_image_size": None,
}  # fmt: skip


def _square(model: str, outputs: tuple[str, ...] = _STATES, **size: Any) -> Recipe:
    return Recipe(model, _PATCHES | size, _SQUARE, {"batch": 2}, outputs)


def _any(model: str, outputs: tuple[str, ...] = ("logits",), **size: Any) -> Recipe:
    example = {"batch": 2, "height": 96, "width": 128}
    return Recipe(model, size, _ANY, example, outputs)


def _film(model: str, **size: Any) -> Recipe:
    axes = {"pixel_values": "float32[batch,4,3,32,32]"}
    return Recipe(model, _PATCHES | {"image_size": 32} | size, axes, {"batch": 2}, _STATES)


FIXED = {
    "deit": _square("DeiTModel"),
    "beit": _square("BeitModel", use_relative_position_bias=True, layer_scale_init_value=1.0),
    "swin": Recipe("SwinModel", _SWIN, _SQUARE, {"batch": 2}, _STATES),
    "swinv2": Recipe("Swinv2Model", _SWIN, _SQUARE, {"batch": 2}, _STATES),
    "dpt": _square(
        "DPTForDepthEstimation", ("predicted_depth",), backbone_out_indices=[0, 1, 2, 3],
        num_hidden_layers=4, neck_hidden_sizes=[8, 16, 24, 32], fusion_hidden_size=16,
    ),
    "vit_mae": Recipe(
        "ViTMAEModel", _PATCHES, _SQUARE | {"noise": "float32[batch,16]"}, {"batch": 2}, _STATES
    ),
    "hiera": Recipe(
        "HieraModel",
        {"image_size": [64, 64], "embed_dim": 16, "depths": [1, 1, 1], "num_heads": [1, 2, 4],
         "query_stride": [2, 2], "num_query_pool": 2, "masked_unit_size": [4, 4]},
        _SQUARE, {"batch": 2}, _STATES,
    ),
    "levit": Recipe(
        "LevitModel",
        {"image_size": 64, "hidden_sizes": [16, 24, 32], "num_attention_heads": [2, 3, 4],
         "depths": [1, 1, 1], "key_dim": [8, 8, 8]},
        # Its last stage has one position an image, of which batch norms take their statistics.
        _SQUARE, {"batch": 32}, _STATES,
    ),
    "videomae": _film("VideoMAEModel", num_frames=4),
    "timesformer": _film("TimesformerModel", num_frames=4),
    "vivit": _film("VivitModel", num_frames=4, tubelet_size=[2, 16, 16]),
}  # fmt: skip

OPEN = {
    "convnextv2": _any(
        "ConvNextV2ForImageClassification", hidden_sizes=[16, 24, 32, 48], depths=[1, 1, 2, 1]
    ),
    "poolformer": _any(
        "PoolFormerForImageClassification", hidden_sizes=[16, 24, 32, 48], depths=[1, 1, 1, 1],
        layer_scale_init_value=1.0,
    ),
    "pvt_v2": _any(
        "PvtV2ForImageClassification", hidden_sizes=[16, 32, 40, 64], depths=[1, 1, 1, 1],
        num_attention_heads=[1, 2, 5, 8], sr_ratios=[8, 4, 2, 1],
    ),
    "regnet": _any(
        "RegNetForImageClassification", embedding_size=16, hidden_sizes=[16, 32, 48, 64],
        depths=[1, 1, 1, 1], groups_width=8,
    ),
    "efficientnet": _any("EfficientNetForImageClassification", width_coefficient=0.25,
                         depth_coefficient=0.25, hidden_dim=320),
    "mobilenet_v2": _any("MobileNetV2ForImageClassification", depth_multiplier=0.35),
    "bit": _any(
        "BitForImageClassification", embedding_size=16, hidden_sizes=[32, 32, 64, 64],
        depths=[1, 1, 1, 1], num_groups=8,
    ),
    "dinov2": _any("Dinov2Model", _STATES, **_PATCHES),
}  # fmt: skip

TILED = {
    "focalnet": _any(
        "FocalNetForImageClassification", embed_dim=16, depths=[1, 1, 1, 1],
        hidden_sizes=[16, 32, 64, 128], focal_levels=[2, 2, 2, 2], focal_windows=[3, 3, 3, 3],
    ),
    "mobilevit": _any(
        "MobileViTForImageClassification", hidden_sizes=[16, 24, 32],
        neck_hidden_sizes=[8, 8, 16, 24, 32, 40, 48],
    ),
    "cvt": _any(
        "CvtForImageClassification", embed_dim=[16, 32, 48], num_heads=[1, 2, 3], depth=[1, 2, 3]
    ),
    "rt_detr": _any("RTDetrForObjectDetection", ("logits", "pred_boxes"), **_RTDETR),
    "rt_detr_v2": _any("RTDetrV2ForObjectDetection", ("logits", "pred_boxes"), **_RTDETR),
    "swin2sr": _any(
        "Swin2SRForImageSuperResolution", ("reconstruction",), image_size=32, embed_dim=16,
        depths=[2], num_heads=[2], window_size=4, upscale=2,
    ),
    "yolos": _any(
        "YolosForObjectDetection", ("logits", "pred_boxes"),
        **(_PATCHES | {"image_size": [64, 64], "num_detection_tokens": 10, "num_labels": 5}),
    ),
}  # fmt: skip


def _all() -> Iterator[Case]:
    for name, recipe in FIXED.items():
        yield from cases(name, recipe, {"batch": "1:8"}, BATCHES)
    for name, recipe in OPEN.items():
        yield from cases(name, recipe, _OPEN, _OPEN_POINTS)
    for name, recipe in TILED.items():
        yield from cases(name, recipe, _TILED, _TILED_POINTS)


CASES = tuple(_all())

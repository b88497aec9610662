"""Models that timm and torchvision make, without their trained weights: thin ones, since nothing
but a width can be asked of most.
"""

from collections.abc import Iterator
from dataclasses import replace

from tests.zoo.case import Case, sizes
from tests.zoo.recipes import Recipe, cases

_ANY = {"x": "float32[batch,3,height,width]"}
_SQUARE = {"x": "float32[batch,3,64,64]"}
_OPEN = {"batch": "1:3", "height": "32:192", "width": "32:192"}
_POINTS = sizes(
    "batch height width", (1, 32, 32), (2, 97, 131), (3, 160, 96), (1, 33, 191), (1, 192, 192)
)
_TILED = {"batch": "1:3", "height": "32:192%32", "width": "32:192%32"}
_TILED_POINTS = sizes(
    "batch height width", (1, 32, 32), (2, 96, 128), (3, 160, 96), (1, 32, 192), (1, 192, 192)
)
_BATCHES = sizes("batch", (1,), (2,), (3,), (7,), (8,))
_TINY = {"num_classes": 10}


def _any(package: str, model: str, **size: object) -> Recipe:
    example = {"batch": 2, "height": 96, "width": 128}
    return Recipe(model, _TINY | size, _ANY, example, package=package)


def _timm(name: str, **size: object) -> Recipe:
    return _any("timm", "create_model", model_name=name, **size)


def _square(name: str, **size: object) -> Recipe:
    full = _TINY | {"model_name": name, "img_size": 64} | size
    return Recipe("create_model", full, _SQUARE, {"batch": 2}, package="timm")


OPEN = {
    "timm_mobilenetv3": _timm("mobilenetv3_small_050"),
    "timm_mobilenetv4": _timm("mobilenetv4_conv_small_050"),
    "timm_efficientnet_lite": _timm("test_efficientnet"),
    "timm_resnetv2": _timm("test_resnet"),
    "timm_byobnet": _timm("test_byobnet"),
    "timm_convnext": _timm("test_convnext"),
    "timm_nfnet": _timm("test_nfnet"),
    "timm_ghostnet": _timm("ghostnet_050"),
    "timm_repvit": _timm("repvit_m0_9", embed_dim=(16, 24, 32, 48), depth=(1, 1, 1, 1)),
    "timm_res2net": _timm("res2net50_14w_8s", layers=(1, 1, 1, 1)),
    "tv_shufflenet": _any("torchvision", "shufflenet_v2_x0_5"),
    "tv_mnasnet": _any("torchvision", "mnasnet0_5"),
    "tv_squeezenet": _any("torchvision", "squeezenet1_1"),
    "tv_googlenet": _any(
        "torchvision", "googlenet", aux_logits=False, init_weights=False, transform_input=True
    ),
    "tv_regnet": _any("torchvision", "regnet_y_400mf"),
    "tv_lraspp": replace(
        _any("torchvision", "segmentation.lraspp_mobilenet_v3_large", weights_backbone=None),
        inputs={"input": _ANY["x"]},
        outputs=("out",),
    ),
}
SQUARE = {
    "timm_vit": _square("test_vit"),
    "timm_eva": _square(
        "eva02_tiny_patch14_224", patch_size=8, depth=2, embed_dim=48, num_heads=4
    ),
    "timm_mixer": Recipe(
        "models.mlp_mixer.MlpMixer",
        _TINY | {"img_size": 64, "patch_size": 8, "num_blocks": 2, "embed_dim": 32},
        _SQUARE, {"batch": 2}, package="timm",
    ),
    "timm_convmixer": Recipe(
        "models.convmixer.ConvMixer", _TINY | {"dim": 24, "depth": 2},
        _ANY, {"batch": 2, "height": 96, "width": 128}, package="timm",
    ),
    "timm_cait": _square("cait_xxs24_224", depth=2, embed_dim=48, num_heads=4, init_values=1.0),
    "timm_xcit": _square("xcit_nano_12_p16_224", depth=2, embed_dim=48, num_heads=4, eta=1.0),
    "timm_maxvit": _square(
        "maxvit_rmlp_pico_rw_256", embed_dim=(32, 64, 96, 128), depths=(1, 1, 1, 1)
    ),
    "timm_edgenext": _timm("edgenext_xx_small", depths=(1, 1, 1, 1)),
}  # fmt: skip


def _all() -> Iterator[Case]:
    yield from cases("timm_hrnet", _timm("hrnet_w18_small"), _TILED, _TILED_POINTS)
    for name, recipe in OPEN.items():
        yield from cases(name, recipe, _OPEN, _POINTS)
    for name, recipe in SQUARE.items():
        square = "height" not in recipe.example
        yield from cases(
            name, recipe, *(({"batch": "1:8"}, _BATCHES) if square else (_OPEN, _POINTS))
        )


CASES = tuple(_all())

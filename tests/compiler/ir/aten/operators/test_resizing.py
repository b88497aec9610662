"""Resizing against torch, the axes symbolic."""

from torch.nn import functional as F

from tests.compiler.ir.torchscript.running import check

FLOATS = "float32"


def test_near() -> None:
    check(
        lambda x: (
            F.interpolate(x, scale_factor=2.0),
            F.interpolate(x, size=(5, 7)),
            F.interpolate(x, scale_factor=1.5),
            F.interpolate(x, size=(7, 5), mode="nearest-exact"),
        ),
        (FLOATS, "n,2,n+1,4"),
    )


def test_bil() -> None:
    check(
        lambda x: (
            F.interpolate(x, scale_factor=2.0, mode="bilinear"),
            F.interpolate(x, size=(5, 7), mode="bilinear", align_corners=True),
            F.interpolate(x, size=(5, 9), mode="bicubic"),
            F.interpolate(x, size=(3, 3), mode="bilinear", antialias=True),
            F.interpolate(x, scale_factor=1.7, mode="bilinear"),
            F.interpolate(x, scale_factor=1.7, mode="bilinear", recompute_scale_factor=True),
        ),
        (FLOATS, "n,2,n+3,4"),
    )


def test_grid() -> None:
    check(
        lambda x, g: (
            F.grid_sample(x, g, align_corners=False),
            F.grid_sample(x, g, mode="nearest", padding_mode="border", align_corners=True),
        ),
        (FLOATS, "n,2,5,4"),
        (FLOATS, "n,3,3,2"),
    )

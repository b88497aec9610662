"""Normalization against torch, the axes symbolic."""

from torch import nn

from tests.compiler.ir.torchscript.running import check

FLOATS = "float32"


def test_ln() -> None:
    check(
        nn.Sequential(nn.LayerNorm(6), nn.LayerNorm((3, 6), elementwise_affine=False)),
        (FLOATS, "n,3,6"),
    )


def test_gn() -> None:
    check(
        nn.Sequential(nn.GroupNorm(2, 4), nn.InstanceNorm2d(4, affine=True), nn.BatchNorm2d(4)),
        (FLOATS, "n,4,n+1,3"),
    )


def test_rms() -> None:
    check(nn.RMSNorm(6), (FLOATS, "n,6"))


def test_bn1() -> None:
    check(nn.Sequential(nn.BatchNorm1d(4), nn.Dropout(0.5)), (FLOATS, "n,4"))

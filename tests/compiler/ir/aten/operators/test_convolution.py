"""Convolution against torch, the axes symbolic."""

from torch import nn

from tests.compiler.ir.torchscript.running import check

FLOATS = "float32"


def test_conv1() -> None:
    check(nn.Sequential(nn.Conv1d(3, 4, 3, padding=1, stride=2), nn.ReLU()), (FLOATS, "n,3,n+1"))


def test_conv2() -> None:
    check(
        nn.Sequential(
            nn.Conv2d(3, 4, 3, padding=1, bias=False),
            nn.BatchNorm2d(4),
            nn.Conv2d(4, 4, 2, groups=2, dilation=2),
        ),
        (FLOATS, "n,3,n+4,8"),
    )


def test_transposed() -> None:
    check(
        nn.Sequential(
            nn.ConvTranspose2d(3, 4, 3, stride=2, padding=1, output_padding=1),
            nn.ConvTranspose2d(4, 2, 2, 2),
        ),
        (FLOATS, "n,3,n+1,4"),
    )


def test_transposed_with_groups() -> None:
    check(nn.ConvTranspose1d(4, 4, 4, stride=2, groups=2, padding=1), (FLOATS, "n,4,n+1"))


def test_conv3() -> None:
    check(nn.Conv3d(2, 3, 2), (FLOATS, "n,2,4,n+1,4"))

"""Pooling against torch, the axes symbolic."""

from torch import nn
from torch.nn import functional as F

from tests.compiler.ir.torchscript.running import check

FLOATS = "float32"


def test_pool() -> None:
    check(nn.Sequential(nn.MaxPool2d(3, 2, 1), nn.AvgPool2d(2)), (FLOATS, "n,3,n+4,9"))


def test_pool2() -> None:
    check(
        lambda x: (
            F.max_pool2d(x, 2, ceil_mode=True),
            F.avg_pool2d(x, 3, 2, 1, count_include_pad=False),
            F.max_pool2d(x, 2, return_indices=True),
            F.avg_pool2d(x, 3, 2, 1, ceil_mode=True),
            F.max_pool2d(x, 2, dilation=2),
        ),
        (FLOATS, "n,2,n+4,7"),
    )


def test_a_partial_window_alone() -> None:
    check(
        lambda x: (
            F.max_pool2d(x, 3, 2, ceil_mode=True),
            F.max_pool2d(x, 3, 2, ceil_mode=True, return_indices=True),
            F.avg_pool2d(x, 3, 2, ceil_mode=True),
        ),
        (FLOATS, "1,2,n,7"),
        sizes=(2, 3, 4, 5),
    )


def test_pool1() -> None:
    check(
        lambda x: (F.max_pool1d(x, 2), F.avg_pool1d(x, 2), F.max_pool3d(x[None], (1, 1, 2))),
        (FLOATS, "n,3,n+2"),
    )


def test_a_divisor_of_ones_own() -> None:
    check(
        lambda x: (
            F.avg_pool2d(x, 3, 2, 1, divisor_override=5),
            F.avg_pool2d(x, 2, ceil_mode=True, divisor_override=-1),
            F.avg_pool3d(x[None], (1, 2, 3), divisor_override=7),
        ),
        (FLOATS, "n,2,n+4,7"),
    )


def test_adapt() -> None:
    check(
        lambda x: (
            F.adaptive_avg_pool2d(x, 1),
            F.adaptive_avg_pool2d(x, (3, 2)),
            F.adaptive_avg_pool1d(x[0], 4),
            F.adaptive_max_pool2d(x, (2, 3)),
            F.adaptive_avg_pool2d(x, (None, 2)),
        ),
        (FLOATS, "n,2,n+3,7"),
    )

"""Normalization against torch, the axes symbolic."""

import torch
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


def test_statistics_of_groups() -> None:
    def of(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        every = torch.native_group_norm(x, None, None, x.shape[0], 4, 6, 2, 1e-5)
        return *every, torch.nn.functional.group_norm(x, 2)

    check(of, (FLOATS, "n,4,6"))


def test_softmax_of_rows_without_weight() -> None:
    def of(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        masked = torch.where(x > 0.5, x, -torch.inf)
        safe = torch.ops.aten._safe_softmax
        return safe(masked, 1), safe(masked, 0, dtype=torch.float64), safe(x, -1)

    check(of, (FLOATS, "n,2"))


def test_batch_norm_without_statistics_of_the_batch() -> None:
    def of(x: torch.Tensor, mean: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return torch.native_batch_norm(x, None, None, mean, mean * mean + 1, False, 0.1, 1e-5)

    check(of, ("float32", "n,3,4"), ("float32", "3"))

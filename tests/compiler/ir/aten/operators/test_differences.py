"""Numerical gradients against torch, the axes symbolic."""

import torch

from tests.compiler.ir.torchscript.running import check

FLOATS = "float32"


def test_equal_spacing() -> None:
    def of(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return (
            *torch.gradient(x),
            *torch.gradient(x, dim=1, spacing=0.5, edge_order=2),
            *torch.gradient((x * 9).long(), dim=0, edge_order=2),
        )

    check(of, (FLOATS, "n,4"), sizes=(3, 4, 7, 13))


def test_coordinates() -> None:
    rows = torch.tensor([1.0, 2.5, 3.0, 7.0])

    def of(x: torch.Tensor, gaps: torch.Tensor) -> tuple[torch.Tensor, ...]:
        columns = gaps.abs().cumsum(0)
        return (
            *torch.gradient(x, spacing=[columns, rows], dim=(0, 1)),
            *torch.gradient(x, spacing=[columns, rows], dim=(0, 1), edge_order=2),
        )

    check(of, (FLOATS, "n,4"), (FLOATS, "n"), sizes=(3, 4, 7, 13))


def test_nan_and_infinities() -> None:
    def of(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        odd = torch.where(x > 1, torch.inf, torch.where(x < -1, torch.nan, x))
        return *torch.gradient(odd), *torch.gradient(odd, edge_order=2)

    check(of, (FLOATS, "n,5"), sizes=(3, 7, 13))

"""Quantiles, counts, covariances and integrals beside torch."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

from tests.compiler.ir.torchscript.running import Spec, check

MATRIX: Spec = ("float32", "n,4")
VECTOR: Spec = ("float32", "n")
POINTS = torch.tensor([0.0, 0.3, 0.5, 1.0])


def with_holes(x: torch.Tensor) -> torch.Tensor:
    return torch.where(x > 0.5, torch.nan, x)


OF_MATRICES: dict[str, Callable[..., Any]] = {
    "quantile": lambda x: torch.quantile(x, POINTS, dim=0),
    "quantile_of_all": lambda x: torch.quantile(x, 0.4, keepdim=True),
    "quantile_is_nan": lambda x: torch.quantile(with_holes(x), POINTS, dim=1),
    "quantile_nearest": lambda x: torch.quantile(x, POINTS, dim=1, interpolation="nearest"),
    "quantile_midpoint": lambda x: torch.quantile(x, POINTS, dim=0, interpolation="midpoint"),
    "nanquantile": lambda x: torch.nanquantile(with_holes(x), POINTS, dim=0, keepdim=True),
    "nanmedian": lambda x: torch.nanmedian(with_holes(x)),
    "nanmedian_along": lambda x: torch.nanmedian(with_holes(x), dim=0),
    "mode": lambda x: torch.mode(x.round(), dim=0),
    "histc": lambda x: torch.histc(x, 5, -1.0, 1.0),
    "histc_of_own_range": lambda x: torch.histc(x, 7),
    "cov": lambda x: torch.cov(x.T, correction=0),
    "cov_weighted": lambda x: torch.cov(x.T, fweights=(x[:, 0] > -9).long()),
    "corrcoef": lambda x: torch.corrcoef(x),
    "trapezoid": lambda x: torch.trapezoid(x, dx=0.5, dim=0),
    "trapezoid_at": lambda x: torch.trapezoid(x, torch.tensor([0.0, 1.0, 3.0, 4.0])),
    "cumulative": lambda x: torch.cumulative_trapezoid(x, dim=1),
    "msort": lambda x: torch.msort(x),
    "renorm": lambda x: torch.renorm(x, 2, 0, 1.5),
    "cummax": lambda x: torch.cummax(with_holes(x.round()), 0),
    "cummin": lambda x: torch.cummin(x.round(), 1),
    "logcumsumexp": lambda x: torch.logcumsumexp(x * 50, 0),
}


@pytest.mark.parametrize("name", OF_MATRICES)
def test_of_matrices(name: str) -> None:
    sizes = (3, 4, 7, 13) if name == "corrcoef" else (3, 1, 4, 7, 13)
    check(OF_MATRICES[name], MATRIX, sizes=sizes)


def test_counts_of_numbers() -> None:
    check(lambda x: torch.bincount(x, minlength=3), ("int64<6", "n"))


def test_counts_by_weight() -> None:
    check(lambda x, w: torch.bincount(x, w), ("int64<6", "n"), VECTOR)


def test_runs() -> None:
    check(
        lambda x: torch.unique_consecutive(x, return_inverse=True, return_counts=True),
        ("int64<3", "n"),
        dims={"n": (1, None)},
    )


def test_boundaries_of_each_row() -> None:
    bounds = torch.tensor([[0.0, 1.0, 2.0], [-1.0, 0.0, 0.5], [1.0, 1.0, 1.0]])
    check(lambda x: torch.searchsorted(bounds, x, right=True), ("float32", "3,n"), sizes=(1, 3, 7))
    order = torch.tensor([2, 0, 1])
    check(
        lambda x: torch.searchsorted(torch.tensor([1.0, 2.0, 0.0]), with_holes(x), sorter=order),
        VECTOR,
    )

"""Histograms with their edges against torch, the axes symbolic."""

import torch

from tests.compiler.ir.torchscript.running import check

FLOATS = "float32"


def test_edges_over_the_samples() -> None:
    check(lambda x: tuple(torch.histogram(x, 4)), (FLOATS, "n,3"))


def test_declared_edges() -> None:
    edges = torch.tensor([-1.0, -0.25, 0.5, 0.75, 2.0])

    def of(x: torch.Tensor, weight: torch.Tensor) -> tuple[torch.Tensor, ...]:
        even = x.round()  # elements that lie on edges
        return (
            *torch.histogram(even, 4, range=(-2.0, 2.0)),
            *torch.histogram(x, edges, weight=weight),
            *torch.histogram(even, edges),
            *torch.histogram(x, 3, range=(-9.0, 9.0), weight=weight, density=True),
        )

    check(of, (FLOATS, "n,3"), (FLOATS, "n,3"))


def test_several_axes() -> None:
    edges = [torch.tensor([-1.0, 0.0, 1.0]), torch.tensor([-2.0, 0.5, 0.75, 2.0])]

    def of(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        counts, (first, second) = torch.histogramdd(x, [3, 2], range=[-3.0, 3.0, -2.0, 2.0])
        dense = torch.histogramdd(x, [2, 2], range=[-9.0, 9.0, -9.0, 9.0], density=True)
        single = torch.histogramdd(x, 3, range=[-9.0, 9.0, -9.0, 9.0])[0]
        return counts, first, second, torch.histogramdd(x, edges)[0], dense[0], single

    check(of, (FLOATS, "n,4,2"))

"""Reductions of segments against torch, the axes symbolic."""

import pytest
import torch

from tests.compiler.ir.torchscript.running import check

FLOATS = "float32"
KINDS = ("sum", "mean", "prod", "max", "min")


@pytest.mark.parametrize("kind", KINDS)
def test_lengths(kind: str) -> None:
    def of(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        lengths = torch.stack([torch.tensor(2), torch.tensor(0), torch.tensor(x.shape[0] - 2)])
        return (
            torch.segment_reduce(x, kind, lengths=lengths, unsafe=True),
            torch.segment_reduce(x, kind, lengths=lengths, unsafe=True, initial=0.5),
        )

    check(of, (FLOATS, "n,3"), sizes=(3, 2, 7, 13))


def test_offsets_of_rows() -> None:
    offsets = torch.tensor([[0, 1, 1, 5], [0, 3, 5, 5]])

    def of(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        odd = torch.where(x > 1, torch.nan, x)
        return tuple(
            torch.segment_reduce(value, kind, offsets=offsets, axis=1)
            for kind in KINDS
            for value in (x, odd)
        )

    check(of, (FLOATS, "2,5,n"))

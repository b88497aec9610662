"""Creation against torch, the axes symbolic."""

import torch

from tests.compiler.ir.torchscript.running import check

FLOATS = "float32"


def test_zeros() -> None:
    check(
        lambda x: (
            torch.zeros(x.size(0), 3),
            torch.ones(2, x.shape[0], dtype=torch.int32),
            torch.full((x.size(0),), 2.5),
            torch.full((2,), x.size(0)),
            torch.zeros_like(x),
            torch.ones_like(x, dtype=torch.bool),
            x.new_zeros(x.size(0), 2),
            torch.full_like(x, 7),
            x.new_full((3,), 1.5),
            x.new_ones(2),
        ),
        (FLOATS, "n,3"),
    )


def test_arange() -> None:
    check(
        lambda x: (
            torch.arange(x.size(0)),
            torch.arange(1, x.size(0) + 1),
            torch.arange(0, 2 * x.size(0), 2),
            torch.arange(x.size(0), dtype=torch.float32),
            torch.arange(0, 1, 0.25),
            torch.arange(5),
            torch.arange(0.5, x.size(0)),
            torch.linspace(0, 1, 7),
            torch.eye(3),
            torch.eye(x.size(0)),
        ),
        (FLOATS, "n,3"),
    )


def test_tensor() -> None:
    check(
        lambda x: (
            torch.tensor(x.size(0)),
            torch.tensor([1, 2.5]),
            torch.tensor([True]),
            x + torch.tensor([1.0, 2.0, 3.0]),
        ),
        (FLOATS, "n,3"),
    )

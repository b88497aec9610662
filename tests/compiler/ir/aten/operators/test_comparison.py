"""Comparison against torch, the axes symbolic."""

import numpy as np
import torch

from tests.compiler.ir.torchscript.running import check, script


def test_logic() -> None:
    check(
        lambda x, y: (
            torch.logical_and(x, y),
            x | y,
            x ^ y,
            ~x,
            torch.logical_or(x, y),
            torch.logical_xor(x, y),
            torch.logical_not(x),
        ),
        ("bool", "n,3"),
        ("bool", "n,3"),
    )


def test_bits() -> None:
    check(
        lambda x, y: (x & y, x | y, x ^ y, ~x, x << 1, x >> 1), ("int32", "n,3"), ("int32", "n,3")
    )


def close(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
    odd = torch.where(y > 0, x / (y - y), y)
    return (
        torch.isclose(odd, odd, equal_nan=True),
        torch.isclose(odd, odd),
        torch.isclose(x, odd, rtol=0.5, atol=0.25, equal_nan=True),
        torch.isclose(x, y, rtol=0.0, atol=0.0),
    )


def test_close_numbers() -> None:
    check(close, ("float32", "n,3"), ("float32", "n,3"))


def test_close_integers_are_compared_exactly() -> None:
    def of(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        large = 1 << 30
        return (
            torch.isclose(x + large, y + large, rtol=0.0, atol=0.0),
            torch.isclose(x + large, y + large, rtol=0.0, atol=1.0),
        )

    check(of, ("int64", "n,3"), ("int64", "n,3"))


def test_all_are_close() -> None:
    class Close(torch.nn.Module):
        def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            return torch.tensor([torch.allclose(x, y, 0.5, 8.0), torch.allclose(x, x + 1e-9)])

    check(script(Close()), ("float32", "n,3"), ("float32", "n,3"))


class Equal(torch.nn.Module):
    def forward(self, x: torch.Tensor, y: torch.Tensor) -> tuple[bool, bool, bool, bool, bool]:
        odd = x / (x - x)
        return (
            torch.equal(x, y),
            torch.equal(x, x + 0),
            torch.equal(odd, odd),
            torch.equal(odd, odd + 0),
            torch.equal(x, x[0]),
        )


def test_equal_tensors() -> None:
    check(script(Equal()), ("float32", "n,3"), ("float32", "n,3"))


def test_tensors_of_shapes_that_run_time_compares() -> None:
    class Alike(torch.nn.Module):
        def forward(self, x: torch.Tensor, y: torch.Tensor) -> tuple[bool, bool]:
            return torch.equal(x, y), torch.equal(x * 0, y[:2] * 0)

    compiled = check(script(Alike()), ("float32", "n,3"), ("float32", "m,3"), sizes=())
    for rows in (1, 2, 3):
        x, y = np.ones((2, 3), np.float32), np.ones((rows, 3), np.float32)
        wanted = Alike()(torch.tensor(x), torch.tensor(y))
        assert tuple(bool(value) for value in compiled(x=x, y=y).values()) == wanted

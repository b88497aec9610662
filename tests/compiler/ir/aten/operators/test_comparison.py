"""Comparison against torch, the axes symbolic."""

import torch

from tests.compiler.ir.torchscript.running import check


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

"""Arithmetic against torch, the axes symbolic."""

import torch

from tests.compiler.ir.torchscript.running import check

FLOATS = "float32"


def test_div() -> None:
    check(
        lambda x: (
            torch.div(x, 2, rounding_mode="floor"),
            torch.div(x, 2, rounding_mode="trunc"),
            x // 3,
            x % 3,
            x % -3,
            torch.fmod(x, 3),
        ),
        ("int32", "n,3"),
    )


def test_divf() -> None:
    check(
        lambda x: (
            torch.div(x, 0.7, rounding_mode="floor"),
            torch.div(x, 0.7, rounding_mode="trunc"),
            x // 0.3,
            x % 0.3,
            x % -0.3,
            torch.fmod(x, 0.3),
        ),
        (FLOATS, "n,3"),
    )


def test_0d() -> None:
    check(lambda x: (x.sum() + x.half(), x.sum().double() + x, x.int() + x.sum()), (FLOATS, "n,3"))


def test_clamp() -> None:
    check(
        lambda x: (x.clamp(-0.5, 0.5), x.clamp(min=0), x.clamp(max=0.2), x.clamp_min(0.1)),
        (FLOATS, "n,3"),
    )


def test_clampi() -> None:
    check(lambda x: (x.clamp(-0.5, 1.5), x.clamp(min=0)), ("int32", "n,3"))


def test_clampt() -> None:
    check(lambda x, y: torch.clamp(x, y, y + 1), (FLOATS, "n,3"), (FLOATS, "3"))


def test_addc() -> None:
    check(
        lambda x, y, z: (
            torch.addcmul(x, y, z, value=0.5),
            torch.addcdiv(x, y, z.abs() + 1, value=2),
            torch.lerp(x, y, 0.3),
            torch.lerp(x, y, z),
            torch.atan2(x, y),
        ),
        (FLOATS, "n,3"),
        (FLOATS, "3"),
        (FLOATS, "n,3"),
    )


def test_where() -> None:
    check(
        lambda x, y: (
            torch.where(x > 0, x, y),
            torch.where(x > 0, x, 0.5),
            torch.where(x > 0, 1.0, x),
            x.masked_fill(x > 0, -1e9),
        ),
        (FLOATS, "n,3"),
        (FLOATS, "1,3"),
    )

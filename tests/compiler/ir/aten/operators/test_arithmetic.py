"""Arithmetic against torch, the axes symbolic."""

import numpy as np
import pytest
import torch

from tests.compiler.ir.divisions import by_numpy, operands
from tests.compiler.ir.torchscript.running import Compiled, check, script, trace

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


def test_torch_divides_by_run_time_integers() -> None:
    def function(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return (
            torch.div(x, y, rounding_mode="floor"),
            torch.div(x, y, rounding_mode="trunc"),
            x // y,
            x % y,
            torch.fmod(x, y),
        )

    one = torch.ones(3, dtype=torch.int32)
    machine = Compiled(trace(function, one, one), {"x": "int32[n]", "y": "int32[n]"})
    x, y = operands("int32", 100)
    wanted = by_numpy(x, y)
    with np.errstate(all="ignore"):
        down = np.floor_divide(x, y)
    order = (down, wanted["div"], down, wanted["mod"], wanted["fmod"])
    for got, want in zip(machine(x=x, y=y).values(), order, strict=True):
        np.testing.assert_array_equal(got, want)
    y[50] = 0
    with pytest.raises(Exception, match="match_cast error"):
        machine(x=x, y=y)


@pytest.mark.parametrize("dtype", ["uint8", "int8", "int32", "int64"])
def test_shifts_by_any_amount(dtype: str) -> None:
    def function(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return torch.bitwise_left_shift(x, y), torch.bitwise_right_shift(x, y)

    one = torch.ones(3, dtype=getattr(torch, dtype))
    machine = Compiled(trace(function, one, one), {"x": f"{dtype}[n]", "y": f"{dtype}[n]"})
    info = np.iinfo(dtype)
    amounts = [0, 1, info.bits - 1, info.bits, info.bits + 1, info.max, info.min, max(info.min, -1)]
    values = np.array([info.min, info.max, 1, -3 if info.min else 3, 0], dtype)
    x, y = np.repeat(values, len(amounts)), np.tile(np.array(amounts, dtype), len(values))
    wanted = function(torch.from_numpy(x), torch.from_numpy(y))
    for got, want in zip(machine(x=x, y=y).values(), wanted, strict=True):
        np.testing.assert_array_equal(got, want.numpy())


def test_numbers_are_divided_by_numbers_that_are_checked() -> None:
    class Shares(torch.nn.Module):
        def forward(self, x: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
            parts = int(k)
            return torch.ones(x.shape[0] // parts + x.shape[0] % parts)

    machine = Compiled(script(Shares()), {"x": "float32[n]", "k": "int64[]"})
    x = np.zeros(13, "float32")
    (got,) = machine(x=x, k=np.array(4)).values()
    assert got.shape == (4,)
    with pytest.raises(Exception, match="match_cast error"):
        machine(x=x, k=np.array(0))

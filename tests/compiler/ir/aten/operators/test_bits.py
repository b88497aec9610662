"""Signs, exponents, neighbours and divisors beside torch."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from tests.compiler.ir.torchscript.running import Compiled, agree, arguments, check, trace

EDGES = torch.tensor(
    [0.0, -0.0, 1.0, -1.0, 0.75, torch.inf, -torch.inf, torch.nan, 1e-45, -3e-39, 3.4e38, 6.5]
)
OF_TWO: dict[str, Callable[..., Any]] = {
    "copysign": torch.copysign,
    "nextafter": torch.nextafter,
    "ldexp": lambda x, y: torch.ldexp(x, y.nan_to_num(0, 3, -3).clamp(-9, 9).round()),
    "signbit": lambda x, y: torch.signbit(x),
    "frexp": lambda x, y: torch.frexp(x),
    "angle": lambda x, y: torch.angle(x),
}


@pytest.mark.parametrize("name", OF_TWO)
def test_every_pair_of_edges(name: str) -> None:
    x, y = EDGES.repeat(len(EDGES)), EDGES.repeat_interleave(len(EDGES))
    module = trace(OF_TWO[name], x, y)
    call = Compiled(module, dict.fromkeys(arguments(module), "float32[n]"))
    feeds = dict(zip(arguments(module), (x.numpy(), y.numpy()), strict=True))
    got = list(call(**feeds).values())
    agree(got, module(x, y))
    if name in ("copysign", "nextafter"):
        wanted = module(x, y).numpy()
        numbers = ~np.isnan(wanted)
        assert (got[0].view("i4") == wanted.view("i4"))[numbers].all()


def test_divisors() -> None:
    check(lambda x, y: (torch.gcd(x * 6, y * 4), torch.lcm(x, y)), ("int64", "n"), ("int64", "n"))


def test_integers_have_signs_too() -> None:
    check(lambda x: (torch.signbit(x), torch.ldexp(x, x), torch.copysign(x, -x)), ("int64", "n,2"))

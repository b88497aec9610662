"""Numbers that programs read out of tensors, of either sign, as sizes, bounds and counts."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from tests.compiler.ir.torchscript.running import Compiled, agree, import_module, run, script

NUMBERS = (-9, -5, -3, -1, 0, 1, 2, 3, 4, 5, 6, 20)


def zeros(x: torch.Tensor, k: int) -> torch.Tensor:
    return torch.zeros(k)


def fewer_ones(x: torch.Tensor, k: int) -> torch.Tensor:
    return torch.ones(k - 2)


def full(x: torch.Tensor, k: int) -> torch.Tensor:
    return x.new_full([2, k], 1.5)


def count_up(x: torch.Tensor, k: int) -> torch.Tensor:
    return torch.arange(k)


def count_down(x: torch.Tensor, k: int) -> torch.Tensor:
    return torch.arange(0, k, -1)


def count_to_zero(x: torch.Tensor, k: int) -> torch.Tensor:
    return torch.arange(k, 0)


def linspace(x: torch.Tensor, k: int) -> torch.Tensor:
    return torch.linspace(0.0, 1.0, k)


def identity(x: torch.Tensor, k: int) -> torch.Tensor:
    return torch.eye(k)


def window(x: torch.Tensor, k: int) -> torch.Tensor:
    return torch.hann_window(k)


def tail(x: torch.Tensor, k: int) -> torch.Tensor:
    return x[:, k:]


def middle(x: torch.Tensor, k: int) -> torch.Tensor:
    return x[:, k - 1 : k + 2]


def column(x: torch.Tensor, k: int) -> torch.Tensor:
    return x[:, k]


def part_from(x: torch.Tensor, k: int) -> torch.Tensor:
    return x.narrow(1, k, 2)


def part_to(x: torch.Tensor, k: int) -> torch.Tensor:
    return x.narrow(1, 1, k)


def repeat(x: torch.Tensor, k: int) -> torch.Tensor:
    return x.repeat(1, k)


def interleave(x: torch.Tensor, k: int) -> torch.Tensor:
    return torch.repeat_interleave(x, k, dim=1)


def roll(x: torch.Tensor, k: int) -> torch.Tensor:
    return torch.roll(x, k, 1)


def pad(x: torch.Tensor, k: int) -> torch.Tensor:
    return F.pad(x, (k, 1))


def reshape(x: torch.Tensor, k: int) -> torch.Tensor:
    return x.reshape(-1, k)


def rows(x: torch.Tensor, k: int) -> torch.Tensor:
    return x.reshape(k, 5)


def expand_first(x: torch.Tensor, k: int) -> torch.Tensor:
    return x[:1].expand(k, 5)


def expand_last(x: torch.Tensor, k: int) -> torch.Tensor:
    return x.expand(x.size(0), k)


def classes(x: torch.Tensor, k: int) -> torch.Tensor:
    return F.one_hot((x > 0).long() * 2, k)


def as_many_classes(x: torch.Tensor, k: int) -> torch.Tensor:
    return F.one_hot((x > 0).long() * max(k, 0))


def parts(x: torch.Tensor, k: int) -> torch.Tensor:
    first, second = torch.split(x, [k, 5 - k], 1)
    return torch.cat([second, first], 1)


def last_part(x: torch.Tensor, k: int) -> torch.Tensor:
    return torch.split(x, k, 1)[-1]


def balanced_part(x: torch.Tensor, k: int) -> torch.Tensor:
    return torch.tensor_split(x, k, 1)[0]


def greatest(x: torch.Tensor, k: int) -> torch.Tensor:
    return torch.topk(x, k)[0]


def triangle(x: torch.Tensor, k: int) -> torch.Tensor:
    return torch.tril(x, k)


def windows(x: torch.Tensor, k: int) -> torch.Tensor:
    return x.unfold(1, k, 1)


def windows_apart(x: torch.Tensor, k: int) -> torch.Tensor:
    return x.unfold(1, 2, k)


def pool(x: torch.Tensor, k: int) -> torch.Tensor:
    return F.adaptive_avg_pool1d(x.unsqueeze(0), k)


def arithmetic(x: torch.Tensor, k: int) -> torch.Tensor:
    return x * k - k // 2 + k % 3


def absolute(x: torch.Tensor, k: int) -> torch.Tensor:
    if k < 0:
        k = -k
    return torch.zeros(k)


def clamp(x: torch.Tensor, k: int) -> torch.Tensor:
    return x[:, : min(max(k, 0), 5)]


def of_one_length(x: torch.Tensor, k: int) -> torch.Tensor:
    return torch.cat([torch.zeros(k), torch.arange(k).float()]) + torch.ones(2 * k)


def truncate(x: torch.Tensor, k: int) -> torch.Tensor:
    return x * int(x.size(0) * 0.5 - 3.0) + k


def _scripted(function: Callable[[Any, int], Any]) -> Any:
    class Reads(nn.Module):
        def forward(self, x: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
            return function(x, int(k))

    return script(Reads())


@pytest.mark.parametrize(("function", "least"), [(zeros, 0), (tail, -9), (roll, -9), (windows, 0)])
def test_samples_are_of_either_sign_where_they_may(
    function: Callable[[Any, int], Any], least: int
) -> None:
    module = import_module(_scripted(function), {"x": "float32[n,5]", "k": "int64[]"})
    assert [limit.low for limit in module.index_bounds["k"]] == [least]


@pytest.mark.parametrize(
    "function",
    [
        *(zeros, fewer_ones, full, count_up, count_down, count_to_zero, linspace, identity),
        *(window, tail, middle, column, part_from, part_to, repeat, interleave, roll, pad),
        *(expand_first, expand_last, classes, as_many_classes),
        *(
            reshape,
            rows,
            parts,
            last_part,
            balanced_part,
            greatest,
            triangle,
            windows,
            windows_apart,
            pool,
        ),
        *(arithmetic, absolute, clamp, of_one_length, truncate),
    ],
)
def test_as_torch_or_refused_as_torch(function: Callable[[Any, int], Any]) -> None:
    module = _scripted(function)
    call = Compiled(module, {"x": "float32[n,5]", "k": "int64[]"})
    x = torch.randn(4, 5, generator=torch.Generator().manual_seed(0))
    for number in NUMBERS:
        feed = {"x": x.numpy(), "k": np.array(number)}
        try:
            wanted = run(module, x, torch.tensor(number))
        except Exception:
            with pytest.raises(RuntimeError, match="match_cast"):
                call(**feed)
            continue
        agree(list(call(**feed).values()), wanted)

"""Changes in place: followed through views, refused where they cannot be proven right."""

from typing import Any

import pytest
import torch
from torch import nn

from compiler.errors import ImportFailed
from tests.compiler.ir.torchscript.running import check, imported, scripted


class Views(nn.Module):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        x = x.clone()
        x[:, 1:3] += 1
        x[0] = 5.0
        x[:, 0].mul_(2)
        flat = x.view(-1)
        flat[1] = 9.0
        x.t()[2].fill_(3.0)
        x[x > 4] = 0.0
        x.relu_()
        copied = torch.zeros_like(x)
        copied[:, ::2] = x[:, ::2]
        return x, copied, flat


class Indices(nn.Module):
    def forward(self, x: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
        x = x.clone()
        x[:, index] = 1.5
        x.index_put_([index * 0], torch.ones(1, 5), accumulate=True)
        x.scatter_(1, index.unsqueeze(0), 7.0)
        x.masked_fill_(x < 0, -1.0)
        for part in x.split(2, 1):
            part.add_(0.5)
        x.chunk(2, 1)[1].copy_(torch.zeros(1, 2))
        return x


class Unsure(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = x.t().contiguous()
        y.add_(1)
        return x + 1


class Overlapping(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = x.expand(4, -1, -1)
        y.add_(1)
        return y


class Shrinking(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x.unsqueeze_(0)
        return x


class CopyThenChange(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = x.reshape(-1)
        y.mul_(2)
        return y


def test_views_of_views() -> None:
    check(scripted(Views()), ("float32", "n,4"))


def test_indices_and_parts() -> None:
    check(scripted(Indices()), ("float32", "n,5"), ("int64<5", "2"))


def test_what_may_be_a_copy_can_be_changed_if_the_original_is_not_read() -> None:
    check(scripted(CopyThenChange()), ("float32", "n,4"))


@pytest.mark.parametrize("module", [Unsure(), Overlapping(), Shrinking()], ids=lambda module: type(module).__name__)
def test_refused(module: Any) -> None:
    with pytest.raises(ImportFailed) as caught:
        imported(scripted(module), {"x": "float32[n,m]"})
    assert caught.value.code == "import.unsupported_mutation"

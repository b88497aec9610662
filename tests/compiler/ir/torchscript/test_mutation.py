"""Changes in place: followed through views, refused where they cannot be proven right."""

from typing import Any

import pytest
import torch
from torch import nn

from compiler.errors import ImportFailed
from tests.compiler.ir.torchscript.running import check, import_module, script


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


class WritesRows(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.clone()
        for row in x.unbind(0):
            row.add_(1)
        return x


class AppendsAndWrites(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        total = torch.zeros(3)
        items: list[torch.Tensor] = []
        for row in range(x.size(0)):
            total.add_(x[row])
            items.append(total)
        return torch.stack(items)


class AppendsWhatItCarries(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        total = torch.zeros(3)
        items: list[torch.Tensor] = []
        for row in range(x.size(0)):
            total.mul_(2)
            total = total + x[row]
            items.append(total)
        return torch.stack(items)


class WritesAnItem(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        items: list[torch.Tensor] = []
        for row in range(x.size(0)):
            items.append(x[row] * 2)
        items[0].add_(5)
        return torch.stack(items)


class WritesAFirstItem(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        first = torch.zeros(3)
        items: list[torch.Tensor] = [first]
        for row in range(x.size(0)):
            items.append(x[row])
        first.add_(1)
        return torch.stack(items)


class SpreadsAndWrites(nn.Module):
    def forward(self, x: torch.Tensor) -> list[torch.Tensor]:
        x = x.clone()
        grids = torch.meshgrid(x[:, 0], x[0])
        x.mul_(2)
        return grids


class AppendsWhatIsNew(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        state = torch.zeros(3)
        items: list[torch.Tensor] = [state]
        for row in range(x.size(0)):
            state = (state + x[row]).relu_()
            state.clamp_(max=1.0)
            items.append(state)
        return torch.stack(items)


class Bits(nn.Module):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        mask = x > 0
        same = mask
        mask &= x < 1
        mask |= x > 1.5
        y = x.clone()
        y.detach_().add_(1)
        return same, y


class Fills(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result = torch.zeros_like(x)
        torch.add(x, x, out=result)
        return result


def test_inplace_bits() -> None:
    check(script(Bits()), ("float32", "n,4"))


def test_views_of_views() -> None:
    check(script(Views()), ("float32", "n,4"))


def test_indices_and_parts() -> None:
    check(script(Indices()), ("float32", "n,5"), ("int64<5", "2"))


def test_what_may_be_a_copy_can_be_changed_if_the_original_is_not_read() -> None:
    check(script(CopyThenChange()), ("float32", "n,4"))


def test_a_list_takes_what_nobody_changes_later() -> None:
    check(script(AppendsWhatIsNew()), ("float32", "n,3"), sizes=(1, 2, 5, 40))


@pytest.mark.parametrize(
    "module",
    [Unsure(), Overlapping(), Shrinking(), SpreadsAndWrites(), Fills()],
    ids=lambda module: type(module).__name__,
)
def test_refused(module: Any) -> None:
    with pytest.raises(ImportFailed) as caught:
        import_module(script(module), {"x": "float32[n,m]"})
    assert caught.value.code == "import.unsupported_mutation"


@pytest.mark.parametrize(
    "module",
    [WritesRows(), AppendsAndWrites(), AppendsWhatItCarries(), WritesAnItem(), WritesAFirstItem()],
    ids=lambda module: type(module).__name__,
)
def test_items_of_a_list_of_unknown_length_are_copies_that_must_not_show(module: Any) -> None:
    with pytest.raises(ImportFailed) as caught:
        import_module(script(module), {"x": "float32[n,3]"})
    assert caught.value.code == "import.unsupported_mutation"

"""Branches and loops: decided at import, unrolled, or compiled."""

from typing import Any

import pytest
import torch
from torch import nn

from compiler.errors import ImportFailed
from tests.compiler.ir.torchscript.running import Compiled, agree, check, import_module, script


class Collected(nn.Module):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, int]:
        items = []
        for step in range(x.size(1)):
            items.append(x[:, step] * 2 + step)
        return torch.stack(items, 1), len(items)


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.LSTMCell(4, 5)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, int]:
        h = torch.zeros(x.size(1), 5)
        c = torch.zeros(x.size(1), 5)
        states: list[torch.Tensor] = []
        step = 0
        while step < x.size(0) and bool(c.abs().sum() < 6.0):
            h, c = self.cell(x[step], (h, c))
            states.append(h)
            step += 1
        return torch.stack(states), c, step


class Branches(nn.Module):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, int]:
        if bool(x.sum() > 0):
            y, k = x * 2, 1
        else:
            y, k = x - 1, 2
        if x.size(0) > 3:
            y = y + 1
        else:
            y = y * 3
        return y, k


class WritesRows(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.zeros(x.size(0), 3)
        for row in range(x.size(0)):
            y[row] = x[row] * row
        return y


class BranchWrites(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = x.clone()
        if bool(x.sum() > 0):
            y[:, 0] = 7.0
        else:
            y.mul_(2)
        return y


class Accumulates(nn.Module):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, int]:
        total = torch.zeros(3)
        count = 0
        while bool(total.sum() < 50.0):
            total += x.abs().sum(0) + 0.1
            count = count + 2
            if count > 10:
                break
        return total, count


class ReturnsEarly(nn.Module):
    def inner(self, x: torch.Tensor) -> torch.Tensor:
        if bool(x.sum() > 0):
            return x * 2
        for step in range(5):
            if bool(x[0, 0] > -step * 0.1):
                return x + step
        return x - 1

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(x)


class Containers(nn.Module):
    def forward(
        self, x: torch.Tensor, k: int = 2, flag: bool = True
    ) -> tuple[dict[str, torch.Tensor], torch.Tensor]:
        assert x.size(0) > 0, "empty"
        table: dict[str, torch.Tensor] = {}
        table["a"] = x * k
        if flag:
            table["b"] = x + 1
        items = [x, x + 1]
        items[0] = x * 5
        items.extend([x, x])
        return table, items[0] + len(items)


class Raises(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if x.size(1) != 4:
            raise RuntimeError("four columns")
        for _ in range(3):
            x = x * 1.1
        step = 0
        while step < 4:
            x = x + step
            step += 1
        return x


class Numbers(nn.Module):
    def forward(self, x: torch.Tensor, k: int = 3) -> tuple[torch.Tensor, float, bool, bool, int]:
        small = True
        if x.size(0) > 5:
            small = False
        index = x.size(0) % 3
        sizes = [k, x.size(0), 2]
        scale = [0.5, 1.5, 2.25][index] * k**2
        return (
            x * scale,
            scale,
            small,
            [True, False, True][index],
            max(sizes) - min(k, x.size(0)) + sum(sizes),
        )


class DifferentRanks(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x if bool(x.sum() > 0) else x[0]


class CarriesAlias(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        total = torch.zeros(3)
        same = total
        while bool(total.sum() < 50.0):
            total += x.abs().sum(0) + 0.1
        return same


@pytest.mark.parametrize(
    "module",
    [Collected(), Branches(), WritesRows(), BranchWrites(), Accumulates(), ReturnsEarly()],
    ids=lambda module: type(module).__name__,
)
def test_control(module: nn.Module) -> None:
    torch.manual_seed(1)
    check(script(module), ("float32", "n,3"), sizes=(1, 2, 5, 11, 40))


def test_both_ways_of_a_branch_are_taken() -> None:
    module = script(Branches())
    call = Compiled(module, {"x": "float32[n,2]"})
    for sign in (1.0, -1.0):
        x = torch.full((2, 2), sign)
        agree(list(call(x=x.numpy()).values()), module(x))


def test_a_recurrent_loop_until_data_says_so() -> None:
    torch.manual_seed(1)
    call = check(script(Recurrent()), ("float32", "n,n+1,4"), sizes=(1, 2, 5, 12, 30))
    assert [spec.text for spec in call.imported.outputs[1:]] == ["float32[n + 1,5]", "int64[]"]


def test_the_length_of_a_list_follows_from_the_trips() -> None:
    call = Compiled(script(Collected()), {"x": "float32[n,t,4]"})
    assert call.imported.outputs[0].text == "float32[n,t,4]"


def test_numbers_keep_their_kind() -> None:
    check(script(Numbers()), ("float32", "n,3"))


def test_containers() -> None:
    call = check(script(Containers()), ("float32", "n,3"))
    assert [spec.name for spec in call.imported.outputs] == ["output_0_a", "output_0_b", "output_1"]
    check(script(Containers()), ("float32", "n,3"), consts={"flag": False, "k": 3})


def test_raising_becomes_a_check() -> None:
    module = script(Raises())
    call = Compiled(module, {"x": "float32[n,m]"})
    x = torch.randn(3, 4)
    agree(list(call(x=x.numpy()).values()), module(x))
    with pytest.raises(Exception, match=r"match_cast|expected|shape"):
        call(x=torch.randn(3, 5).numpy())


@pytest.mark.parametrize(
    ("module", "inputs", "code"),
    [
        (Raises(), {"x": "float32[n,5]"}, "import.raises"),
        (DifferentRanks(), {"x": "float32[n,3]"}, "import.branch_rank"),
        (CarriesAlias(), {"x": "float32[n,3]"}, "import.unsupported_mutation"),
    ],
    ids=["raises", "ranks", "alias"],
)
def test_refused(module: nn.Module, inputs: dict[str, Any], code: str) -> None:
    with pytest.raises(ImportFailed) as caught:
        import_module(script(module), inputs)
    assert caught.value.code == code


class PicksOne(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if x.size(-1) == 1:
            y = x[:, :, 0]
        else:
            y = x
        return torch.addmm(torch.ones(3), y, torch.ones(4, 3))


class PicksAndGoesOn(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if x.size(-1) == 1:
            y = x[:, :, 0]
        else:
            y = x
        return y * 2


def test_blocks_of_different_ranks_of_which_one_fits() -> None:
    call = Compiled(script(PicksOne()), {"x": "float32[n,4,w]"})
    for n in (1, 5):
        x = torch.randn(n, 4, 1)
        agree(list(call(x=x.numpy()).values()), PicksOne()(x))
    with pytest.raises(RuntimeError, match="match_cast"):
        call(x=torch.randn(2, 4, 3).numpy())


def test_blocks_of_different_ranks_that_both_fit_are_refused() -> None:
    with pytest.raises(ImportFailed, match="ranks 2 and 3") as caught:
        import_module(script(PicksAndGoesOn()), {"x": "float32[n,4,w]"})
    assert caught.value.code == "import.branch_rank"
    call = Compiled(script(PicksAndGoesOn()), {"x": "float32[n,4,w]"}, dims={"w": (2, 9)})
    agree(list(call(x=torch.ones(2, 4, 3).numpy()).values()), torch.ones(2, 4, 3) * 2)


class Lists(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        wide = [size > 4 for size in x.shape]
        if any([False, True]) and not any(wide[2:]) and all([1, 2]) and not all([1.0, 0.0]):
            x = x + 1
        return x * 2 if any(wide) else -x if all([x.size(0) > 1, x.size(1) > 1]) else x


def test_any_and_all_of_a_list() -> None:
    check(script(Lists()), ("float32", "n,3"))

"""Loops, scans and maps of torch.export against torch at several sizes, and their references."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch._higher_order_ops.map import map as map_items
from torch._higher_order_ops.scan import scan
from torch._higher_order_ops.while_loop import while_loop

from compiler.verify.reference.exported import ExportedProgram
from tests.compiler.ir.pt2.running import check, export, import_program, save
from tests.compiler.ir.torchscript.running import Machine, agree

ROWS, ROW = ("float32", "n,4"), ("float32", "4")


class Cell(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)


class Until(Cell):
    """Takes as many steps as the integers add up to."""

    def forward(self, x: torch.Tensor, counts: torch.Tensor) -> Any:
        return while_loop(
            lambda i, a: i < counts.sum(),
            lambda i, a: (i + 1, torch.tanh(self.linear(a))),
            (torch.tensor(0), x),
        )


class Scanned(Cell):
    def forward(self, x: torch.Tensor, state: torch.Tensor) -> Any:
        def step(carry: torch.Tensor, row: torch.Tensor) -> Any:
            return torch.tanh(self.linear(row) + carry), carry * 2

        return scan(step, state, x, dim=0)


class Backward(nn.Module):
    def forward(self, x: torch.Tensor, state: torch.Tensor) -> Any:
        return scan(lambda c, a: (torch.tanh(a + c), c * 2), state, x, dim=0, reverse=True)


class Mapped(Cell):
    def forward(self, x: torch.Tensor, y: torch.Tensor) -> Any:
        return map_items(lambda row, other: self.linear(row) + other, x, y)


class Branches(nn.Module):
    """Has a branch within a scan, and a loop whose end import knows."""

    def forward(self, x: torch.Tensor, state: torch.Tensor) -> Any:
        def step(carry: torch.Tensor, row: torch.Tensor) -> Any:
            added = torch.cond(row.sum() > 0, lambda a: a + 1.0, lambda a: a.sin(), (carry,))
            return added, added + row

        last, rows = scan(step, state, x, dim=0)
        _, twice = while_loop(
            lambda i, a: i < 3, lambda i, a: (i + 1, a * 2.0), (torch.tensor(0), rows)
        )
        return last, twice


@pytest.mark.parametrize("module", [Scanned(), Backward(), Mapped(), Branches()])
def test_scans_and_maps(module: nn.Module) -> None:
    check(module, ROWS, ROW, sizes=(3, 2, 7, 33), forms=(False,))


@pytest.mark.parametrize("length", [1, 40])
def test_a_scan_of_fixed_length(length: int) -> None:
    check(Scanned(), ("float32", f"{length},4"), ROW, forms=(False,))


@pytest.mark.parametrize("counts", [(0, 0), (1, 0), (2, 3), (40, 1), (-3, 1)])
def test_a_loop_runs_while_its_condition_holds(counts: tuple[int, int]) -> None:
    module = Until()
    x = torch.randn(3, 4)
    program = export(module, (x, torch.tensor([1, 2])))
    number = torch.tensor(counts)
    outputs = Machine(import_program(program))(x=x.numpy(), counts=number.numpy())
    with torch.no_grad():
        agree(list(outputs.values()), module(x, number))


@pytest.mark.parametrize("module", [Until(), Scanned(), Mapped(), Branches()])
@pytest.mark.parametrize("wide", [False, True])
def test_the_reference_runs_their_graphs(module: nn.Module, wide: bool) -> None:
    second = torch.tensor([1, 2]) if isinstance(module, Until) else torch.randn(4)
    x = torch.randn(5, 4)
    program = export(module, (x, second))
    path = save(program)
    names = [spec.name for spec in import_program(program).inputs]
    feeds = dict(zip(names, (x.numpy(), second.numpy()), strict=True))
    outputs = ExportedProgram(str(path), wide).run(feeds, {})
    with torch.no_grad():
        wanted = torch.utils._pytree.tree_leaves(module(x, second))
    for have, want in zip(outputs.values(), wanted, strict=True):
        np.testing.assert_allclose(have, want.numpy(), 1e-5, 1e-5)

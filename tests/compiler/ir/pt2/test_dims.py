"""Dims of exported programs: names, ranges, expressions, and what torch assumed of them."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.export import Dim

from compiler.errors import ImportFailed
from compiler.ir.pt2.guards import condition_of
from compiler.ir.pt2.inspection import inspect
from compiler.ir.pt2.program import Program, read_program
from relaxd.contract.request import CompileRequest
from tests.compiler.ir.pt2.running import export, import_program, read_saved, save
from tests.compiler.ir.torchscript.running import Machine, agree


class Sum(nn.Module):
    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x + y


def program(low: int = 0, high: int | None = 8) -> Any:
    n, k = Dim("batch", min=low, max=high), Dim("width", min=2, max=30)
    x = torch.ones(3, 5)
    return export(Sum(), (x, x), ({0: n, 1: k}, {0: n, 1: k}))


def dims_of(exported: Any, **declared: Any) -> dict[str, tuple[int, int | None]]:
    return {dim.name: (dim.min, dim.max) for dim in import_program(exported, **declared).dims}


def test_sizes_are_called_after_the_first_axis_that_has_them() -> None:
    imported = import_program(program())
    assert [[axis.text for axis in spec.shape] for spec in imported.inputs] == [["x_0", "x_1"]] * 2
    assert dims_of(program()) == {"x_0": (1, 8), "x_1": (2, 30)}


def test_a_least_size_of_0_can_be_declared() -> None:
    assert dims_of(program(), dims={"x_0": (0, 4)}) == {"x_0": (0, 4), "x_1": (2, 30)}


def test_a_dim_without_a_maximum_takes_a_declared_one() -> None:
    exported = program(2, None)
    assert dims_of(exported)["x_0"] == (2, None)
    assert dims_of(exported, dims={"x_0": (1, 64)})["x_0"] == (2, 64)


def test_a_declared_range_is_intersected_with_the_file_s() -> None:
    exported = program(1, 8)
    assert dims_of(exported, dims={"x_0": (4, 100), "x_1": 7}) == {"x_0": (4, 8), "x_1": (7, 7)}
    with pytest.raises(ImportFailed, match="exported for sizes of x_0 from 1 to 8") as caught:
        dims_of(exported, dims={"x_0": (9, 100)})
    assert caught.value.code == "import.dim_range"


def test_one_redeclared_input_renames_the_size_everywhere() -> None:
    imported = import_program(program(), inputs={"y": "float32[batch,4]"}, dims={"batch": (1, 3)})
    assert [[axis.text for axis in spec.shape] for spec in imported.inputs] == [["batch", "4"]] * 2
    assert dims_of(program(), inputs={"y": "float32[batch,4]"}) == {"batch": (1, 8)}


@pytest.mark.parametrize(
    ("declared", "code"),
    [
        ({"inputs": {"z": "float32[n,4]"}}, "import.unknown_input"),
        ({"inputs": {"x": "int64[n,4]"}}, "import.input_dtype"),
        ({"inputs": {"x": "float32[n]"}}, "import.input_rank"),
        ({"inputs": {"x": "float32[n,4]", "y": "float32[m,4]"}}, "import.input_shape"),
        ({"inputs": {"x": "float32[n,99]"}}, "import.dim_range"),
        ({"dims": {"batch": (1, 4)}}, "import.unknown_dim"),
        ({"consts": {"x": 1}}, "import.unknown_input"),
    ],
)
def test_contradictions_are_named(declared: Any, code: str) -> None:
    with pytest.raises(ImportFailed) as caught:
        import_program(program(), **declared)
    assert caught.value.code == code


def test_a_fixed_axis_stays_fixed() -> None:
    exported = export(Sum(), (torch.ones(3), torch.ones(3)))
    with pytest.raises(ImportFailed, match="axis 0 of input 'x' is 3 in the program"):
        import_program(exported, inputs={"x": "float32[n]"})


class Halves(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.reshape(x.shape[0] // 2, 2, 3).sum(1)


def test_derived_sizes_are_expressions() -> None:
    n = Dim("n", min=2, max=9)
    imported = import_program(export(Halves(), (torch.ones(6, 3),), ({0: 2 * n},)))
    (spec,), (dim,) = imported.inputs, imported.dims
    assert spec.shape[0].text == f"2 * {dim.name}"
    assert (dim.min, dim.max) == (2, 9)
    assert imported.outputs[0].shape[0].text == dim.name
    for size in (2, 5, 9):
        x = torch.randn(2 * size, 3)
        agree(list(Machine(imported)(x=x.numpy()).values()), Halves()(x))


class Assumes(nn.Module):
    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        torch._check(x.shape[0] * 2 <= y.shape[0])
        return x.sum() + y[: x.shape[0] * 2].sum()


def test_guards_are_checked_at_every_run() -> None:
    exported = export(
        Assumes(),
        (torch.ones(2), torch.ones(9)),
        ({0: Dim("a", min=2, max=20)}, {0: Dim("b", min=4, max=20)}),
    )
    machine = Machine(import_program(exported))
    (output,) = machine(x=np.ones(3, "f4"), y=np.ones(6, "f4")).values()
    assert output == 9
    with pytest.raises(Exception, match="match_cast"):
        machine(x=np.ones(4, "f4"), y=np.ones(7, "f4"))


@pytest.mark.parametrize(
    ("guard", "holds"),
    [
        ("L['x'].size()[0] == 4", True),
        ("2*L['x'].size()[1] <= L['d']['a'].size()[0]", False),
        ("L['x'].size()[0] % 2 != 0 or not L['x'].size()[1] < 5", True),
        ("1 < L['x'].size()[0] <= max(3, L['x'].size()[1] // 2)", False),
    ],
)
def test_guards_are_comparisons(guard: str, holds: bool) -> None:
    assert condition_of(guard, {"x": (4, 6), "d_a": (5,)}) is holds


@pytest.mark.parametrize(
    "guard", ["f(1)", "L['z'].size()[0] == 1", "L['x'].size()[9] == 1", "x == 1", "L['x'] == (", ""]
)
def test_other_guards_are_refused(guard: str) -> None:
    with pytest.raises(ImportFailed) as caught:
        condition_of(guard, {"x": (4, 6)})
    assert caught.value.code == "import.pt2_guard"


def inspect_saved(exported: Any, **declared: Any) -> dict[str, Any]:
    return inspect(read_saved(exported), CompileRequest.of(**declared))


def test_an_inspection_says_what_an_import_gives() -> None:
    report, imported = inspect_saved(program()), import_program(program())
    assert report["supported"]
    assert report["error"] is None
    assert report["inputs"] == [spec.to_json() for spec in imported.inputs]
    assert report["outputs"] == [spec.to_json() for spec in imported.outputs]
    assert report["dims"] == {dim.name: dim.to_json() for dim in imported.dims}
    (node,) = (node for node in report["nodes"] if node["op"] == "aten::add")
    assert node["outputs"] == ["float32[x_0,x_1]"]
    assert "test_dims.py:" in node["source"]


def test_an_inspection_names_contradictions() -> None:
    report = inspect_saved(program(1, 8), dims={"x_0": (9, 100)})
    assert not report["supported"]
    assert report["error"]["code"] == "import.dim_range"
    assert report["inputs"] == ["x", "y"]


def test_reading_keeps_ranges(tmp_path: Any) -> None:
    read: Program = read_program(save(program(1, 8), tmp_path / "m.pt2"))
    assert sorted(read.ranges.values()) == [(1, 8), (2, 30)]

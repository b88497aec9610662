"""The reference of exported programs: torch's operators called on the file's nodes give what
torch's own loader gives.
"""

import io
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from compiler.verify.reference.exported import ExportedProgram
from compiler.verify.reference.onnx import ENGINES, EXPORTED, exact_engines_of
from tests.compiler.ir.pt2.running import export, save
from tests.compiler.ir.pt2.test_models import Branch, Cnn, Counter, Encoder
from tests.compiler.ir.torchscript.running import agree


class Kinds(nn.Module):
    """Lists, dtypes, memory formats, infinities and sizes as arguments."""

    def forward(self, x: torch.Tensor) -> Any:
        n = x.shape[0]
        y = torch.cat(
            [x, torch.full((n, 1), float("-inf")), x.new_zeros(n, 2, dtype=torch.double)], 1
        )
        z = x.to(torch.float16).contiguous(memory_format=torch.contiguous_format)
        a, b = x.split([1, 3], 1)
        return y.amax(1), z, {"parts": (a, b), "top": x.topk(2, dim=1)[1]}, x[:, [0, 2]]


IDS = torch.arange(8).reshape(2, 4)
CASES: dict[str, tuple[Any, tuple[torch.Tensor, ...]]] = {
    "cnn": (Cnn(), (torch.randn(2, 4, 6, 8),)),
    "encoder": (Encoder(), (IDS, IDS)),
    "kinds": (Kinds(), (torch.randn(3, 4),)),
    "lstm": (nn.LSTM(4, 5, batch_first=True), (torch.randn(2, 3, 4),)),
    "branch": (Branch(), (torch.ones(3), torch.ones(3))),
    "buffers": (Counter(), (torch.randn(2, 4),)),
}


@pytest.mark.parametrize("decompose", [False, True])
@pytest.mark.parametrize("name", CASES)
def test_results_are_those_of_torchs_loader(name: str, decompose: bool, tmp_path: Path) -> None:
    module, values = CASES[name]
    path = save(export(module, values, decompose=decompose), tmp_path / "m.pt2")
    wanted = torch.export.load(path).module()(*(value.clone() for value in values))
    engine = ExportedProgram(str(path))
    names = [argument.name for argument in engine._program.arguments]
    feeds = {name: value.numpy() for name, value in zip(names, values, strict=True)}
    for _ in range(2):
        agree(list(engine.run(feeds, {}).values()), wanted, 1e-6)
    wide = ExportedProgram(str(path), wide=True).run(feeds, {})
    moved = ExportedProgram(str(path), perturbation=1).run(feeds, {})
    for have, exact, near in zip(
        engine.run(feeds, {}).values(), wide.values(), moved.values(), strict=True
    ):
        if have.dtype.kind == "f":
            assert exact.dtype == np.float64
        tolerance = 1e-2 if have.dtype == np.float16 else 1e-4
        np.testing.assert_allclose(have, exact, tolerance, tolerance)
        np.testing.assert_allclose(have, near, tolerance, tolerance)


def test_declared_buffers_are_fed_and_returned(tmp_path: Path) -> None:
    x = np.ones((2, 4), "f4")
    path = save(export(Counter(), (torch.from_numpy(x),)), tmp_path / "m.pt2")
    feeds = {"x": x, "count": np.full(1, 5, "f4")}
    outputs = ExportedProgram(str(path)).run(feeds, {})
    assert list(outputs) == ["output", "count"]
    assert outputs["count"] == 6
    assert feeds["count"] == 5


class Trap:
    def __reduce__(self) -> Any:
        return (pytest.fail, ("a part was unpickled",))


def test_sample_inputs_are_not_unpickled(tmp_path: Path) -> None:
    """torch.export.load falls back to pickle where torch.load refuses."""
    saved = save(export(Cnn(), (torch.randn(2, 4, 6, 8),)), tmp_path / "m.pt2")
    buffer = io.BytesIO()
    torch.save((Trap(),), buffer)
    trap = tmp_path / "trap.pt2"
    with zipfile.ZipFile(saved) as source, zipfile.ZipFile(trap, "w") as target:
        for name in source.namelist():
            sample = name.endswith("sample_inputs/model.pt")
            target.writestr(name, buffer.getvalue() if sample else source.read(name))
    feeds = {"x": np.ones((2, 4, 6, 8), "f4")}
    assert list(ExportedProgram(str(trap)).run(feeds, {})) == ["output"]


def test_engines_of_exported_programs() -> None:
    (exact,) = exact_engines_of(EXPORTED)
    assert {*EXPORTED, exact} <= set(ENGINES)

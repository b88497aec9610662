"""A `.pt2` file through the whole compiler, in its own processes, with its dims from the file."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from compiler.api import compile_model, inspect_request
from compiler.errors import LoadError
from compiler.ir.files.model_file import LoadedProgram, open_model
from compiler.isolation.child import run_child
from compiler.isolation.messages import InspectJob
from relaxd.contract.request import CompileRequest

ROOT = Path(__file__).parents[2]
MAKE = """
import sys, torch
from torch.export import Dim, export, save
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = torch.nn.Linear(6, 8), torch.nn.Linear(8, 3)
        self.register_buffer("count", torch.zeros(1))
    def forward(self, x):
        self.count += 1
        scores = self.second(torch.relu(self.first(x))).softmax(-1)
        return {"scores": scores, "count": self.count + 0}
torch.manual_seed(0)
program = export(Net().eval(), (torch.zeros(3, 6),), dynamic_shapes=({0: Dim("n", max=9)},))
save(program, sys.argv[1])
"""


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("exported") / "net.pt2"
    script = path.with_name("make.py")
    script.write_text(MAKE)
    subprocess.run(
        [sys.executable, "-W", "ignore", str(script), str(path)], check=True, capture_output=True
    )
    return path


def test_compiled_and_compared_with_torch(saved: Path, tmp_path: Path) -> None:
    manifest = compile_model(saved, output=tmp_path / "out", options={"profile": False})
    assert [(dim.name, dim.min, dim.max) for dim in manifest.dims] == [("x_0", 1, 9)]
    assert [spec.name for spec in manifest.outputs] == ["scores", "count"]
    numerics = json.loads((tmp_path / "out" / "numerics.json").read_text())
    assert numerics["verdict"] == "passed"
    assert numerics["reference"].startswith("torch ")
    assert numerics["verified_up_to"] == {"x_0": 9}


def test_the_format_is_told_by_content(saved: Path) -> None:
    loaded = open_model(saved)
    assert isinstance(loaded, LoadedProgram)
    assert loaded.digest.startswith("sha256:")


def test_inspections_in_a_process_of_their_own_say_the_same(saved: Path) -> None:
    request = CompileRequest.of(dims={"x_0": (1, 4)})
    report: Any = run_child(InspectJob(str(saved), request.to_json()))
    assert report == inspect_request(saved, request)
    assert report["state"] == ["count"]
    assert report["dims"]["x_0"]["max"] == 4


def test_a_truncated_file_is_a_typed_failure(saved: Path, tmp_path: Path) -> None:
    path = tmp_path / "cut.pt2"
    path.write_bytes(saved.read_bytes()[:-3000])
    with pytest.raises(LoadError):
        inspect_request(path, CompileRequest.of())


def test_the_command_inspects_with_few_imports(saved: Path) -> None:
    """Imports are what most of its time goes to; HTTP, other commands and TVM are not needed."""
    code = (
        "import atexit, sys\n"
        "atexit.register(lambda: print(*sys.modules, file=sys.stderr))\n"
        "from relaxd.cli import main\n"
        "main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, "inspect", str(saved)],
        check=True,
        capture_output=True,
        text=True,
        cwd=ROOT,
    )
    assert "supported: yes" in done.stdout
    imported = set(done.stderr.split())
    needless = (
        "asyncio",
        "httpx",
        "onnx",
        "torch",
        "tvm",
        "tvm_ffi",
        "compiler.api",
        "compiler.isolation.child",
        "relaxd.cli.compiling",
        "relaxd.client.client",
    )
    assert "relaxd.cli.inspecting" in imported
    assert not imported & set(needless)

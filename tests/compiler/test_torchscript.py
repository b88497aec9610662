"""TorchScript files through the whole compiler, in its own processes."""

import json
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

from compiler.api import compile_model
from compiler.errors import LoadError
from compiler.ir.files.model_file import LoadedScript, open_model
from compiler.isolation.child import run_child
from compiler.isolation.messages import FamiliesJob
from relaxd.contract.request import CompileRequest

ROOT = Path(__file__).parents[2]
MAKE = """
import sys, torch
class Loop(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.cell = torch.nn.LSTMCell(4, 5)
        self.register_buffer("count", torch.zeros(1))
    def forward(self, x, k: int):
        h = torch.zeros(x.size(1), 5)
        c = torch.zeros(x.size(1), 5)
        found: list[torch.Tensor] = []
        step = 0
        while step < x.size(0) and bool(c.abs().sum() < 6.0):
            h, c = self.cell(x[step], (h, c))
            found.append(h * k)
            step += 1
        self.count = self.count + 1
        return {"states": torch.stack(found), "last": (h, self.count)}
torch.manual_seed(0)
torch.jit.save(torch.jit.script(Loop().eval()), sys.argv[1])
"""


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("torchscript") / "loop.anything"
    # A file, since torch.jit.script reads the source.
    script = path.with_name("make.py")
    script.write_text(MAKE)
    subprocess.run(
        [sys.executable, "-W", "ignore", str(script), str(path)], check=True, capture_output=True
    )
    return path


@pytest.mark.slow
def test_compiled_and_compared_with_torch(saved: Path, tmp_path: Path) -> None:
    declared: dict[str, Any] = {
        "inputs": {"x": "float32[t,n,4]", "count": "float32[1]"},
        "consts": {"k": 3},
    }
    manifest = compile_model(saved, output=tmp_path / "out", options={"profile": False}, **declared)
    assert [spec.name for spec in manifest.outputs] == ["states", "last_0", "last_1", "count"]
    numerics = json.loads((tmp_path / "out" / "numerics.json").read_text())
    assert numerics["verdict"] == "passed"
    assert numerics["reference"].startswith("torch ")


def test_the_format_is_told_by_content(saved: Path) -> None:
    loaded = open_model(saved)
    assert isinstance(loaded, LoadedScript)
    assert loaded.digest.startswith("sha256:")


def test_other_archives_of_torch(tmp_path: Path) -> None:
    path = tmp_path / "weights.pt"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("weights/data.pkl", b"")
    with pytest.raises(LoadError) as caught:
        open_model(path)
    assert caught.value.code == "load.not_torchscript"
    assert "torch.save has pickled" in str(caught.value)
    assert "torch.jit.save" in str(caught.value)


def test_without_torch_the_error_says_what_to_install(saved: Path) -> None:
    code = f"""
import sys
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name == "torch": raise ImportError(name)
sys.meta_path.insert(0, Absent())
from pathlib import Path
from compiler.errors import ToolchainMissing
from compiler.ir import import_torchscript
try:
    import_torchscript(Path({str(saved)!r}), None)
except ToolchainMissing as error:
    print(error.code, error)
"""
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.startswith("toolchain.torch")
    assert ".whl[torchscript]" in done.stdout


NET = """
import sys, torch
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first = torch.nn.Linear(32, 32)
    def forward(self, x):
        return torch.relu(self.first(x))
torch.jit.trace(Net().eval(), torch.zeros(4, 32)).save(sys.argv[1])
"""


def test_kernels_name_operators_and_their_outputs(tmp_path: Path) -> None:
    model = tmp_path / "net.pt"
    subprocess.run([sys.executable, "-c", NET, str(model)], check=True)
    request = CompileRequest.of(inputs={"x": "float32[n,32]"})
    report: Any = run_child(FamiliesJob(str(model), request.to_json(), "native"))
    (kernel,) = (one for one in report["kernels"] if "matmul" in one["name"])
    assert kernel["nodes"] == ["linear %7", "relu %4"]


STREAMING = """
import sys, torch
class Streaming(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.depthwise = torch.nn.Conv1d(4, 4, 3, groups=4)
        self.norm = torch.nn.BatchNorm1d(4)
        self.pointwise = torch.nn.Conv1d(4, 8, 3, dilation=2)
    def forward(self, x, cache):
        joined = torch.cat([cache, x], dim=2)
        h = torch.nn.functional.hardswish(self.norm(self.depthwise(joined)))
        wide = torch.cat([torch.zeros(x.size(0), 4, 4), h], dim=2)
        return torch.relu(self.pointwise(wide)), joined[:, :, -2:]
torch.manual_seed(0)
torch.jit.save(torch.jit.script(Streaming().eval()), sys.argv[1])
"""


def test_convolutions_behind_a_cache(tmp_path: Path) -> None:
    """A stream: what a run read last goes in front of the next one's."""
    script, model = tmp_path / "streaming.py", tmp_path / "streaming.pt"
    script.write_text(STREAMING)
    subprocess.run([sys.executable, "-W", "ignore", str(script), str(model)], check=True)
    compile_model(
        model,
        output=tmp_path / "out",
        inputs={"x": "float32[n,4,t]", "cache": "float32[n,4,2]"},
        dims={"n": (1, 3), "t": (1, 50)},
        options={"profile": False},
    )
    numerics = json.loads((tmp_path / "out" / "numerics.json").read_text())
    assert numerics["verdict"] == "passed"

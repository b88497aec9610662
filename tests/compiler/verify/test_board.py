"""Archives for micro-controllers are run on an emulated board before they are published."""

import json
import subprocess
from fnmatch import fnmatchcase
from pathlib import Path

import onnx
import pytest

from compiler import compile_model, targets
from compiler.errors import CodegenError
from compiler.host import capabilities
from compiler.targets import TargetStatus
from compiler.verify.emulation import board, emulator
from relaxd.contract.bundle.manifest import Manifest
from tests.compiler.codegen.standalone import models
from tests.docs import blocks
from tests.support.emulated import require_board, with_c_library

PAGE = Path(__file__).parents[3] / "docs" / "howto" / "micro-controllers.md"
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module", params=["cortex-m4", "cortex-m55", "rv32imc", "rv32imafc"])
def built(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    name, folder = require_board(request.param).name, tmp_path_factory.mktemp("board") / "out"
    options = {"profile": False}
    compile_model(
        models.perceptron(), output=folder, target=name, dims={"n": "1:9"}, options=options
    )
    return folder


@with_c_library
def test_an_archive_is_run_at_every_point(built: Path) -> None:
    numerics = json.loads((built / "numerics.json").read_text())
    assert (numerics["verdict"], numerics["status"]) == ("passed", "emulated")
    assert len(numerics["points"]) >= 4


@with_c_library
def test_it_holds_its_weights_and_needs_arithmetic_alone(built: Path) -> None:
    manifest = Manifest.from_json(json.loads((built / "manifest.json").read_text()))
    assert manifest.weights == ()
    assert {"model.a", "model.h"} < manifest.files.keys()
    assert manifest.weights_file not in manifest.files
    assert "NULL, since the library holds them" in (built / "model.h").read_text()
    listed = subprocess.run(
        ["llvm-nm", "--undefined-only", "--format=just-symbols", str(built / "model.a")],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()[1:]
    calls = targets.resolve(manifest.target["name"]).platform.abi.calls
    assert [name for name in listed if not any(fnmatchcase(name, call) for call in calls)] == []


_CALLER = """
const char *compute(int64_t n, const float *x, float *y);

int main(int count, char **arguments) {
  static float x[9 * 32], y[8 * 7];
  const char *failure = compute(count == 1 ? 8 : 9, x, y);
  if (failure != NULL) fputs(failure, stderr);
  return failure != NULL || y[8 * 7 - 1] == 0;
}
"""


@with_c_library
def test_the_program_of_the_documentation(tmp_path: Path) -> None:
    target = require_board("cortex-m7")
    qemu = emulator.find(target)
    assert not isinstance(qemu, str)
    (block,) = [b for b in blocks.blocks_of(PAGE) if b.language == "c"]
    source, program = tmp_path / "board.c", tmp_path / "program"
    source.write_text(f"#include <stdio.h>\n{block.body}\n{_CALLER}")
    onnx.save(models.perceptron(), tmp_path / "mlp.onnx")
    bundle, options = tmp_path / "out", {"profile": False, "verify": False}
    compile_model(
        tmp_path / "mlp.onnx", output=bundle, target=target.name, dims={"n": "1:8"}, options=options
    )
    assert board.build(bundle, "relaxd_mlp", target, program, source) is None
    done = subprocess.run(board.command(qemu, program), check=False)
    assert done.returncode == 0
    failed = subprocess.run(
        board.command(qemu, program, "9"), capture_output=True, text=True, check=False
    )
    assert (failed.returncode, failed.stderr + failed.stdout) == (1, "n = 9, it must be 1 to 8")


def test_what_only_a_run_can_size_is_refused_with_its_node(tmp_path: Path) -> None:
    with pytest.raises(CodegenError, match="no heap") as caught:
        compile_model(
            models.nonzero(),
            output=tmp_path / "out",
            target="cortex-m4",
            options={"verify": False, "profile": False},
        )
    assert caught.value.failure.code == "codegen.heap"
    assert caught.value.failure.node == "places"


@pytest.mark.parametrize(
    ("name", "program", "package"),
    [
        ("cortex-m7", "qemu-system-arm", "qemu-system-arm"),
        ("rv32imc", "qemu-system-riscv32", "qemu-system-misc"),
    ],
)
def test_without_the_emulator_archives_are_only_compiled(
    name: str, program: str, package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = targets.resolve(name)
    monkeypatch.setattr("shutil.which", lambda name: f"/usr/bin/{name}")
    assert capabilities.verification(target) is TargetStatus.EMULATED
    monkeypatch.setattr("shutil.which", lambda name: None)
    assert emulator.explain_missing(target) == f"{program} is not installed: install {package}"
    assert capabilities.verification(target) is TargetStatus.COMPILED_ONLY

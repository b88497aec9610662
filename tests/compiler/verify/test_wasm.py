"""Modules for WebAssembly are run in node before they are published."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from compiler import compile_model, targets
from compiler.host import capabilities
from compiler.targets import TargetStatus
from compiler.verify.emulation import engine
from compiler.verify.run.wasm import run_library
from tests.support.models.decoders import FILLED_DIMS, GROWN_DIMS, fill, grown
from tests.support.models.small import mask
from tests.support.servers import missing

pytestmark = pytest.mark.slow


@pytest.fixture(
    scope="module", params=["wasm32", "wasm32-simd", "wasm32-relaxed-simd", "wasm32-threads"]
)
def bundle(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    if engine.lacking():
        missing("node", "apt-get install nodejs")
    folder = tmp_path_factory.mktemp("wasm") / "out"
    compile_model(
        mask(),
        output=folder,
        target=request.param,
        dims={"batch": "1:4", "seq": "1:16"},
        options={"profile": False},
    )
    return folder


def test_a_module_is_run_at_every_point(bundle: Path) -> None:
    numerics = json.loads((bundle / "numerics.json").read_text())
    assert (numerics["verdict"], numerics["status"]) == ("passed", "executed")
    assert numerics["left_out"] == []
    assert numerics["verified_up_to"] == {"batch": 4, "seq": 16}


@pytest.mark.parametrize(
    ("model", "dims", "target"),
    [(fill, FILLED_DIMS, "wasm32-simd"), (grown, GROWN_DIMS, "wasm32-threads")],
)
def test_caches_that_a_module_writes_are_compared(
    model: Any, dims: dict[str, Any], target: str, tmp_path: Path
) -> None:
    if engine.lacking():
        missing("node", "apt-get install nodejs")
    options = {"state": "lifted", "profile": False}
    compile_model(model(), output=tmp_path / "out", target=target, dims=dims, options=options)
    numerics = json.loads((tmp_path / "out" / "numerics.json").read_text())
    assert (numerics["verdict"], numerics["status"]) == ("passed", "executed")
    compared = {output["name"] for output in numerics["outputs"]}
    assert {"logits", "present.0.key", "present.0.value"} <= compared


def test_what_fails_in_a_module_is_reported_with_its_sentence(bundle: Path, tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    shutil.copytree(bundle, broken)
    (broken / "model.wasm").write_bytes(b"\0asm\1\0\0\0" + b"\x63")
    inputs = tmp_path / "inputs.arrays"
    _write_inputs(inputs)
    files = {"inputs": str(inputs), "outputs": str(tmp_path / "outputs.arrays")}
    points = [{"index": 0, "effort": 0, **files}]
    records: list[dict[str, object]] = []
    spec = {"bundle": str(broken), "scratch": str(tmp_path), "seconds": 60, "points": points}
    run_library(spec, records.append)
    assert "CompileError" in str(records[0]["failed"])


def test_without_an_engine_modules_are_only_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    target = targets.resolve("wasm32-simd")
    monkeypatch.setattr("shutil.which", lambda name: "/usr/bin/node")
    assert capabilities.verification(target) is TargetStatus.EXECUTED
    monkeypatch.setattr("shutil.which", lambda name: None)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert engine.lacking() == "node is not installed"
    assert capabilities.verification(target) is TargetStatus.COMPILED_ONLY


def _write_inputs(path: Path) -> None:
    import numpy as np

    from compiler.verify.inputs import array_file

    x = np.zeros((1, 2, 32), "float32")
    array_file.write(path, {"x": x, "mask": np.ones((1, 2), "int64")})

"""Without node, modules for WebAssembly are run in wasmtime, where its Python package is."""

import importlib.util
import json
import re
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from compiler import compile_model, targets
from compiler.host import capabilities
from compiler.targets import TargetStatus
from compiler.verify.emulation import engine
from compiler.verify.point_loop import PointFailed
from compiler.verify.run.wasm import Module
from relaxd.loader.bundles.bundle import read_manifest
from tests.support.models.decoders import FILLED_DIMS, fill
from tests.support.models.small import WIDTH, perceptron
from tests.support.servers import missing

_TARGETS = ("wasm32", "wasm32-simd", "wasm32-relaxed-simd")
_DIMS = {"batch": "0:4", "seq": "1:64"}

installed = pytest.mark.skipif(
    importlib.util.find_spec("wasmtime") is None, reason="pip install wasmtime"
)


def _choose(monkeypatch: pytest.MonkeyPatch, *, node: bool) -> engine.Engine:
    with monkeypatch.context() as patch:
        if not node:
            patch.setattr(engine, "find", lambda: None)
        chosen = engine.choose()
    assert isinstance(chosen, engine.Engine)
    return chosen


@installed
@pytest.mark.slow
@pytest.mark.parametrize("target", _TARGETS)
def test_a_build_without_node_is_verified(
    target: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    manifest = compile_model(perceptron(), output=tmp_path / "out", target=target, dims=_DIMS)
    numerics = json.loads((tmp_path / "out" / "numerics.json").read_text())
    assert (numerics["verdict"], numerics["left_out"]) == ("passed", [])
    assert numerics["status"] == manifest.target["status"] == "executed"
    assert re.fullmatch(r"wasmtime \d+\.\d+\.\d+", numerics["emulation"]["by"])
    assert "browsers" in numerics["emulation"]["unseen"]


@installed
@pytest.mark.slow
def test_caches_that_a_module_writes_are_compared(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    options = {"state": "lifted", "profile": False}
    out = tmp_path / "out"
    compile_model(fill(), output=out, target="wasm32-simd", dims=FILLED_DIMS, options=options)
    numerics = json.loads((out / "numerics.json").read_text())
    assert (numerics["verdict"], numerics["status"]) == ("passed", "executed")
    compared = {output["name"] for output in numerics["outputs"]}
    assert {"logits", "present.0.key", "present.0.value"} <= compared


@installed
@pytest.mark.slow
@pytest.mark.parametrize("target", _TARGETS)
def test_its_outputs_are_those_of_node(
    target: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    if engine.lacking():
        missing("node", "apt-get install nodejs")
    out = tmp_path / "out"
    options = {"verify": False, "profile": False}
    compile_model(perceptron(), output=out, target=target, dims=_DIMS, options=options)
    here, other = (
        Module(_choose(monkeypatch, node=node), out, read_manifest(out), tmp_path)
        for node in (False, True)
    )
    assert (here.engine.name, other.engine.name) == ("wasmtime", "node")
    draw = np.random.default_rng(0)
    for batch, seq in ((0, 1), (1, 1), (3, 17), (4, 64)):
        x = draw.standard_normal((batch, seq, WIDTH)).astype("float32")
        x.flat[:3] = np.resize([np.nan, np.inf, -0.0], x.size)[:3]
        got, want = (np.asarray(module.run({"x": x})["y"]) for module in (here, other))
        assert got.shape == (batch, seq, WIDTH)
        # A relaxed multiply-add may be rounded once or twice.
        error = 1e-6 if target == "wasm32-relaxed-simd" else 0
        np.testing.assert_allclose(got, want, rtol=error, atol=error)


@installed
@pytest.mark.slow
def test_what_fails_in_a_module_is_reported_with_its_sentence(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    options = {"verify": False, "profile": False}
    manifest = compile_model(perceptron(), output=out, target="wasm32", dims=_DIMS, options=options)
    from compiler.verify.emulation import wasmtime_host

    content, x = (out / manifest.weights_file).read_bytes(), np.zeros((1, 65, WIDTH), "float32")
    with pytest.raises(wasmtime_host.Failed, match="seq"):
        wasmtime_host.run(
            out / manifest.library, manifest.entry, content, [x], {"batch": 1, "seq": 65}
        )
    module = Module(_choose(monkeypatch, node=False), out, manifest, tmp_path)
    (out / "model.wasm").write_bytes(b"\0asm\1\0\0\0" + b"\x63")
    with pytest.raises(PointFailed, match="under wasmtime: WasmtimeError: "):
        module.run({"x": np.zeros((1, 1, WIDTH), "float32")})


def _pretend(monkeypatch: pytest.MonkeyPatch, package: Any) -> None:
    monkeypatch.setattr("shutil.which", lambda name: None)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: package)
    monkeypatch.setattr(metadata, "version", lambda name: "50.0.1")


def test_wasmtime_runs_one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    _pretend(monkeypatch, object())
    chosen = engine.choose()
    assert isinstance(chosen, engine.Engine)
    assert dict(chosen.report)["by"] == "wasmtime 50.0.1"
    simd, threads = targets.resolve("wasm32-simd"), targets.resolve("wasm32-threads")
    assert capabilities.verification(simd) is TargetStatus.EXECUTED
    assert capabilities.verification(threads) is TargetStatus.COMPILED_ONLY
    why = "node is not installed, and wasmtime runs no module of several threads from Python"
    assert engine.choose(threads=True) == why


def test_what_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    _pretend(monkeypatch, None)
    assert engine.choose() == "node is not installed, nor is the Python package wasmtime"

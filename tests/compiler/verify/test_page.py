"""Models for WebGPU are run in headless Chromium before they are published."""

import json
import shutil
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from compiler import compile_model, targets
from compiler.host import capabilities
from compiler.isolation.step import Outcome
from compiler.targets import TargetStatus
from compiler.verify import report, sides
from compiler.verify.emulation import browser
from compiler.verify.inputs import array_file
from compiler.verify.inputs.inputs import Signature, Trial, Trials
from compiler.verify.inputs.points import Point
from compiler.verify.run.page import run_library
from relaxd.contract.options import CompileOptions
from tests.support.models.small import mask
from tests.support.servers import missing

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if browser.find() is None:
        missing("Chromium's headless shell", "apt-get install chromium-headless-shell")
    folder = tmp_path_factory.mktemp("page") / "out"
    compile_model(
        mask(),
        output=folder,
        target="webgpu",
        dims={"batch": "1:4", "seq": "1:16"},
        options={"profile": False},
    )
    return folder


def test_a_bundle_is_run_at_every_point(bundle: Path) -> None:
    numerics = json.loads((bundle / "numerics.json").read_text())
    assert (numerics["verdict"], numerics["status"]) == ("passed", "emulated")
    assert numerics["left_out"] == []
    assert numerics["verified_up_to"] == {"batch": 4, "seq": 16}


def test_it_is_the_shaders_that_run(bundle: Path, tmp_path: Path) -> None:
    changed = _changed(bundle, tmp_path / "changed", b"fma(", b"mix(")
    right, wrong = (
        _outputs(folder, tmp_path / name) for folder, name in ((bundle, "a"), (changed, "b"))
    )
    assert right["y"].shape == wrong["y"].shape
    assert np.abs(right["y"] - wrong["y"])[0, 1].max() > 1e-3


def test_what_fails_in_the_page_is_reported_with_its_sentence(bundle: Path, tmp_path: Path) -> None:
    records: list[dict[str, Any]] = []
    spec = _spec(bundle, tmp_path, mask=np.ones((1, 2), "int32"))
    run_library(spec, records.append)
    assert "in Chromium: InputError: input mask has 1 values" in records[0]["failed"]
    broken = tmp_path / "broken"
    shutil.copytree(bundle, broken)
    (broken / "model.wasm").write_bytes(b"\0asm\1\0\0\0")
    with pytest.raises(browser.BrowserFailed, match=r"BundleError: model\.wasm does not have"):
        run_library({**spec, "bundle": str(broken)}, records.append)


def test_an_adapter_may_be_too_small(bundle: Path, tmp_path: Path) -> None:
    needy = _changed(bundle, tmp_path / "needy", b'"size":[256,', b'"size":[9e9,')
    records: list[dict[str, Any]] = []
    run_library(_spec(needy, tmp_path, np.ones((1, 2), "int64")), records.append)
    (record,) = records
    assert "whose maxComputeInvocationsPerWorkgroup is 9000000000" in record["unable"]


SMALL = "LoadContractError: the model needs a WebGPU adapter whose maxBufferSize is 9"
LATE = "the time budget of 240 s ran out"


@pytest.mark.parametrize(
    ("outcome", "reason"),
    [
        (Outcome([{"unable": SMALL}], True), SMALL),
        (Outcome([], False, LATE, late=True), f"the library finished no point: {LATE}"),
    ],
)
def test_what_the_adapter_is_too_small_or_slow_for_is_only_compiled(
    outcome: Outcome, reason: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    trial = Trial(0, Point("min", {}), tmp_path, 0)
    answer = sides.Answered("", [trial], [])
    monkeypatch.setattr(report, "ask_reference", lambda *arguments, **more: answer)
    monkeypatch.setattr(sides, "run_task", lambda *arguments, **more: outcome)
    trials, signature, options = Trials((trial,), ()), Signature((), (), (), {}), CompileOptions()
    numerics = report.verify(
        tmp_path,
        sides.Reference(tmp_path, {}),
        signature,
        trials,
        options,
        tmp_path,
        sides.Budget(),
        sides.Runner("", slow=True),
    )
    assert (numerics["status"], numerics["reason"]) == ("compiled_only", reason)


def test_without_the_browser_such_bundles_are_only_compiled(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    target = targets.resolve("webgpu")
    monkeypatch.setattr("shutil.which", lambda name: f"/usr/bin/{name}")
    assert browser.lacking() is None
    assert capabilities.verification(target) is TargetStatus.EMULATED
    monkeypatch.setattr(browser, "PACKAGE", tmp_path)
    assert browser.lacking() == "the npm package's modules are not installed"
    monkeypatch.undo()
    monkeypatch.setattr("shutil.which", lambda name: None)
    assert browser.lacking() == "chromium-headless-shell is not installed"
    assert capabilities.verification(target) is TargetStatus.COMPILED_ONLY


def _changed(bundle: Path, folder: Path, old: bytes, new: bytes) -> Path:
    """A copy of the bundle whose library has other bytes, with the manifest that belongs to it."""
    shutil.copytree(bundle, folder)
    library, manifest = folder / "model.wasm", folder / "manifest.json"
    content = library.read_bytes()
    assert old in content
    library.write_bytes(content.replace(old, new))
    before, after = (sha256(one).hexdigest() for one in (content, library.read_bytes()))
    manifest.write_text(manifest.read_text().replace(before, after))
    return folder


def _spec(bundle: Path, folder: Path, mask: np.ndarray) -> dict[str, Any]:
    inputs = folder / "inputs.arrays"
    x = np.random.default_rng(0).standard_normal((1, 2, 32)).astype("float32")
    array_file.write(inputs, {"x": x, "mask": mask})
    files = {"inputs": str(inputs), "outputs": str(folder / "outputs.arrays")}
    points = [{"index": 0, "effort": 0, **files}]
    return {"bundle": str(bundle), "scratch": str(folder), "seconds": 60, "points": points}


def _outputs(bundle: Path, folder: Path) -> Any:
    """Where the second of two rows is multiplied."""
    folder.mkdir()
    records: list[dict[str, Any]] = []
    run_library(_spec(bundle, folder, np.array([[0, 1]])), records.append)
    assert [record["index"] for record in records] == [0]
    return array_file.read(folder / "outputs.arrays")

"""Kernels that builds leave for later ones, and those that these take."""

import dataclasses
import json
import sys
import time
import zipfile
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import numpy_helper

import relaxd
from compiler import api
from compiler.build import build
from compiler.errors import CompileCancelled, CompileError, CompileTimeout
from compiler.isolation import child
from compiler.isolation.child import run_child
from compiler.isolation.linux.visible_paths import runs_code
from compiler.isolation.messages import CompileJob, Event, Log, Progress
from compiler.process.__main__ import _visible_paths
from compiler.toolchain import zig
from compiler.toolchain.objects import KERNELS_MB, KernelObjects
from relaxd.contract.options import Flavour
from relaxd.contract.request import CompileRequest
from relaxd.contract.states import Stage
from tests.compiler.building import DIMS, QUICK
from tests.compiler.graphs import add_and_divide
from tests.service.fakes import write_bundle

KEY = "ab" * 32
CHILD = """
import json, os, sys
from pathlib import Path
from compiler.isolation import output
from compiler.isolation.messages import job_from_json
from compiler.toolchain.objects import Objects
fd = int(sys.argv[sys.argv.index("--messages") + 1])
job = job_from_json(json.load(sys.stdin))
Objects(Path(job.fresh_kernels)).put("ab" * 32, b"code")
folder = output.partial_of(job)
"""
ENDS = {
    "well": """
manifest = json.loads(Path(job.request["manifest"]).read_text())
(folder / "manifest.json").write_text(json.dumps(manifest))
os.write(fd, (json.dumps({"kind": "succeeded", "result": manifest}) + "\\n").encode())
""",
    "with another manifest": """
(folder / "manifest.json").write_text("{}")
os.write(fd, b'{"kind": "succeeded", "result": {"name": "another"}}\\n')
""",
    "badly": "sys.exit(1)",
    "never": """
os.write(fd, b'{"kind": "stage", "stage": "link"}\\n')
import time
time.sleep(600)
""",
}


@pytest.fixture
def stored(tmp_path: Path) -> KernelObjects:
    return KernelObjects(tmp_path / "kernels", "one", 1 << 30)


def run(
    tmp_path: Path,
    stored: KernelObjects,
    end: str,
    model: Path,
    events: list[Event] | None = None,
    cancelled: Callable[[], bool] = lambda: False,
) -> list[Event]:
    """A build by a stand-in for the compile process."""
    events = [] if events is None else events
    request = CompileRequest.of(dims=DIMS).to_json()
    job = CompileJob(str(model), request, "native", str(tmp_path / "out"), "net")
    manifest = tmp_path / "any.json"
    manifest.write_text(json.dumps(write_bundle(job, tmp_path / "any").to_json()))
    job = dataclasses.replace(job, request={"manifest": str(manifest)})
    command = [sys.executable, "-c", CHILD + ENDS[end]]
    run_child(job, command=command, kernels=stored, on_event=events.append, cancelled=cancelled)
    return events


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "bench" / "model.onnx"
    path.parent.mkdir()
    onnx.save(add_and_divide(), path)
    return path


def test_kernels_of_a_build_that_ended_well_are_kept(
    tmp_path: Path, stored: KernelObjects, model: Path
) -> None:
    run(tmp_path, stored, "well", model)
    assert stored.objects.get(KEY) == b"code"


@pytest.mark.parametrize("end", ["badly", "with another manifest"])
def test_kernels_of_another_build_are_not(
    tmp_path: Path, stored: KernelObjects, model: Path, end: str
) -> None:
    with pytest.raises(CompileError):
        run(tmp_path, stored, end, model)
    assert not stored.root.exists()


@pytest.mark.parametrize("reason", ["cancelled", "too long"])
def test_a_build_that_was_interrupted_leaves_what_it_compiled(
    tmp_path: Path,
    stored: KernelObjects,
    model: Path,
    monkeypatch: pytest.MonkeyPatch,
    reason: str,
) -> None:
    events: list[Event] = []
    if is_late := reason == "too long":
        late = SimpleNamespace(monotonic=lambda: time.monotonic() + 1e9 * len(events))
        monkeypatch.setattr(child, "time", late)
    with pytest.raises(CompileTimeout if is_late else CompileCancelled):
        run(tmp_path, stored, "never", model, events, lambda: bool(events) and not is_late)
    assert stored.objects.get(KEY) == b"code"


def test_a_model_that_runs_code_leaves_none(tmp_path: Path, stored: KernelObjects) -> None:
    archive = tmp_path / "model.pt"
    with zipfile.ZipFile(archive, "w") as script:
        script.writestr("net/code/net.py", "")
    assert runs_code(archive)
    run(tmp_path, stored, "well", archive)
    assert not stored.root.exists()


def test_a_build_whose_kernels_cannot_be_kept_ends_well(
    tmp_path: Path, stored: KernelObjects, model: Path
) -> None:
    stored.root.write_text("no folder")
    events = run(tmp_path, stored, "well", model)
    assert [event for event in events if isinstance(event, Log) and "not kept" in event.line]


def test_a_build_reads_the_kernels_of_its_owner_alone(tmp_path: Path, model: Path) -> None:
    one, other = (KernelObjects(tmp_path / "kernels", name, 1 << 30) for name in ("one", "other"))
    for each in (one, other):
        each.objects.put(KEY, b"code")
    output, kernels = str(tmp_path / "out"), str(one.objects.folder)
    job = CompileJob(str(model), {}, "native", output, "net", kernels=kernels)
    allowed = _visible_paths(job, tmp_path / "scratch", tmp_path / "cache")
    assert one.objects.folder in allowed.readable
    assert one.objects.folder not in allowed.writable
    for path in (*allowed.readable, *allowed.writable, *allowed.listable):
        assert not other.objects.folder.is_relative_to(path)


class Builds:
    """Builds whose kernels are one owner's."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder, self.events = folder, list[Event]()
        self.monkeypatch = monkeypatch
        self.owned_by("one")

    def owned_by(self, owner: str) -> None:
        stored = KernelObjects(self.folder / "kernels", owner, 1 << 30)
        self.monkeypatch.setattr(api, "_kernels", lambda: stored)

    def model(self, seed: int) -> Path:
        """The file of a net whose weights the seed decides."""
        model, path = add_and_divide(), self.folder / "net.onnx"
        draw = np.random.default_rng(seed)
        for weight in model.graph.initializer:
            array = draw.random(weight.dims, np.float32) + 1
            weight.CopyFrom(numpy_helper.from_array(array, weight.name))
        onnx.save(model, path)
        return path

    def run(
        self,
        seed: int,
        *,
        kernels: bool = True,
        dump: Path | None = None,
        flavour: Flavour = Flavour.STANDALONE,
    ) -> tuple[dict[str, bytes], str | None]:
        """The files of the bundle, and what was said of its kernels."""
        events: list[Any] = []
        output = self.folder / f"out{len(list(self.folder.iterdir()))}"
        api.compile_request(
            self.model(seed),
            CompileRequest.of(dims=DIMS, options=dataclasses.replace(QUICK, flavour=flavour)),
            output=output,
            target="native",
            on_event=events.append,
            dump=dump,
            kernels=kernels,
        )
        messages = [event.message for event in events if is_of_codegen(event)]
        files = {path.name: path.read_bytes() for path in output.iterdir()}
        return files, messages[0] if messages else None


def is_of_codegen(event: Event) -> bool:
    return isinstance(event, Progress) and event.stage is Stage.CODEGEN


# The virtual machine has one more, which computes extents.
@pytest.mark.parametrize(("flavour", "kernels"), [(Flavour.STANDALONE, 1), (Flavour.VM, 2)])
def test_fine_tuned_weights_take_the_kernels_that_are_there(
    flavour: Flavour, kernels: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    builds = Builds(tmp_path, monkeypatch)
    _, cold = builds.run(0, flavour=flavour)
    warm_files, warm = builds.run(1, flavour=flavour)
    files, nothing = builds.run(1, kernels=False, flavour=flavour)
    assert (cold, warm, nothing) == (
        f"0 of {kernels} kernels were compiled by earlier builds",
        f"{kernels} of {kernels} kernels were compiled by earlier builds",
        None,
    )
    assert warm_files == files
    builds.owned_by("another")
    assert builds.run(1, flavour=flavour)[1] == cold


def test_the_driver_of_fine_tuned_weights_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiled: list[str] = []
    compile_with_zig = zig.compile_with_zig

    def counted(*arguments: str, **settings: Any) -> None:
        compiled.append(arguments[-1])
        compile_with_zig(*arguments, **settings)

    monkeypatch.setattr(zig, "compile_with_zig", counted)
    builds, stored = (
        Builds(tmp_path, monkeypatch),
        KernelObjects(tmp_path / "kernels", "one", 1 << 30),
    )
    request = CompileRequest.of(dims=DIMS, options=QUICK).to_json()
    for seed in range(2):
        fresh, output = tmp_path / f"fresh{seed}", tmp_path / f"bundle{seed}"
        job = CompileJob(
            str(builds.model(seed)),
            request,
            "native",
            str(output),
            model_name="net",
            kernels=str(stored.objects.folder),
            fresh_kernels=str(fresh),
        )
        build(job)
        stored.take(fresh)
        assert [Path(source).name for source in compiled] == ["model.c"]
        x = np.ones((2, 16), np.float32)
        session = onnxruntime.InferenceSession(job.model)
        (expected,) = session.run(None, {"x": x})
        np.testing.assert_allclose(relaxd.load(output).run({"x": x})["y"], expected, rtol=1e-6)


@pytest.mark.parametrize("flavour", [Flavour.STANDALONE, Flavour.VM])
def test_a_dump_shows_kernels_that_are_there(
    flavour: Flavour, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    builds = Builds(tmp_path, monkeypatch)
    builds.run(0, flavour=flavour)
    warm, _ = builds.run(1, flavour=flavour)
    files, reported = builds.run(1, dump=tmp_path / "dump", flavour=flavour)
    assert reported is None
    assert files == warm
    assert list((tmp_path / "dump" / "80_functions").iterdir())
    dumped = "".join(path.read_text() for path in (tmp_path / "dump").rglob("*.py"))
    assert "T.vectorized(" in dumped
    assert "relaxd.object" not in dumped


def test_no_kernels_are_kept_where_none_are_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RELAXD_KERNEL_CACHE_MB", "0")
    assert api._kernels() is None
    monkeypatch.delenv("RELAXD_KERNEL_CACHE_MB")
    kernels = api._kernels()
    assert kernels is not None
    assert kernels.bytes == KERNELS_MB << 20

"""Libraries for every processor of the registry: of the format and the machine that they say,
complete or refused.
"""

import json
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnx
import pytest

from compiler import build, runtimes, targets
from compiler.errors import LinkError
from compiler.isolation.messages import CompileJob
from compiler.link.standalone import FUNCTIONS
from compiler.targets import Runtime, Target
from compiler.targets.architectures import ARCHITECTURES
from compiler.verify.emulation import emulator
from relaxd.contract.bundle.manifest import HELPERS, Manifest
from relaxd.contract.options import CompileOptions, Flavour
from relaxd.contract.request import CompileRequest
from tests.compiler.graphs import add_and_divide, sorting
from tests.support.binaries import code_of, expected_machine, machine_of
from tests.support.emulated import needs_c_library, with_c_library
from tests.support.servers import missing

pytestmark = pytest.mark.slow

C_LIBRARY = re.compile(r"_?(mem(cpy|set|move)|bzero|posix_memalign|free)|__aeabi_\w+")
"""What a library without a runtime may use; Mach-O puts an underscore before C's names."""

WRAPPERS = {
    "android-arm64": {"Model.kt", "model_jni.c"},
    "ios-arm64": {"Model.swift", "module.modulemap", "Info.plist"},
}
CPUS = [
    target for target in targets.registry() if target.device is None and target.name != "native"
]


def job(model: Path, output: Path, name: str, **options: bool | str) -> CompileJob:
    values: dict[str, Any] = {"verify": False, "profile": False, **options}
    quick = CompileOptions(**values)
    request = CompileRequest.of(dims={"batch": (1, 8)}, options=quick).to_json()
    return CompileJob(str(model), request, name, str(output), "two words")


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "m.onnx"
    path.write_bytes(add_and_divide(rows=1).SerializeToString())
    return path


@pytest.mark.parametrize("target", CPUS, ids=lambda target: target.name)
def test_the_library_is_of_the_target(target: Target, model: Path, tmp_path: Path) -> None:
    manifest = build.build(job(model, tmp_path / "out", target.name))
    assert machine_of(code_of(tmp_path / "out" / manifest.library, target)) == expected_machine(
        target
    )
    assert manifest.load.arch == target.arch
    assert manifest.load.os == target.platform.os
    assert manifest.target["status"] == "unverified", "the job wants no check"
    assert manifest.flavour == "standalone"
    assert not [name for name in manifest.files if "tvm" in name]
    bundled = target.platform.runtime is Runtime.BUNDLED
    assert (HELPERS in manifest.files) == (bundled and target.platform.os == "linux")
    if HELPERS in manifest.files:
        assert machine_of((tmp_path / "out" / HELPERS).read_bytes()) == expected_machine(target)


BUNDLED = [target for target in CPUS if target.platform.runtime is Runtime.BUNDLED]


@pytest.mark.parametrize("target", BUNDLED, ids=lambda target: target.name)
def test_the_runtime_is_of_the_target(target: Target, model: Path, tmp_path: Path) -> None:
    manifest = build.build(job(model, tmp_path / "out", target.name, flavour="vm"))
    carried = [name for name in manifest.files if "tvm_runtime" in name]
    assert carried
    for name in (manifest.library, *carried):
        code = code_of(tmp_path / "out" / name, target)
        assert machine_of(code) == expected_machine(target)


def test_an_archive_for_a_runtime_has_symbols_of_its_own_and_a_header(
    model: Path, tmp_path: Path
) -> None:
    manifest = build.build(job(model, tmp_path / "out", "riscv64", flavour="vm"))
    header = (tmp_path / "out" / "model.h").read_text()
    prefix = header.partition('_PREFIX "')[2].partition('"')[0]
    assert prefix.startswith("relaxd_two_words_")
    assert f"__tvm_ffi_{prefix}".encode() in (tmp_path / "out" / manifest.library).read_bytes()
    assert f"static inline int {prefix}open(TVMFFIObjectHandle *entry)" in header
    assert all(
        f"{spec.name}: {spec.text}" in header for spec in (*manifest.inputs, *manifest.outputs)
    )


@pytest.mark.parametrize("name", ["armv7", "riscv64-v", "android-arm64", "ios-arm64"])
def test_an_archive_needs_nothing_but_the_c_library(name: str, model: Path, tmp_path: Path) -> None:
    manifest = build.build(job(model, tmp_path / "out", name))
    library = tmp_path / "out" / manifest.library
    assert (manifest.flavour, manifest.entry) == ("standalone", "relaxd_two_words")
    assert f"int {manifest.entry}_run(" in (tmp_path / "out" / "model.h").read_text()
    assert not re.search(rb"tvm|TVM", library.read_bytes())
    assert WRAPPERS.get(name, set()) <= set(manifest.files)
    defined, used = symbols(library)
    assert {f"{manifest.entry}_{function}" for function in FUNCTIONS} <= defined
    assert {symbol for symbol in used if not C_LIBRARY.fullmatch(symbol)} == set()


def test_an_archive_for_phones_runs_on_the_oldest_system_that_the_target_names(
    model: Path, tmp_path: Path
) -> None:
    manifest = build.build(job(model, tmp_path / "out", "ios-arm64"))
    library = tmp_path / "out" / manifest.library
    command = [_tool("llvm-readobj"), "--macho-version-min", str(library)]
    printed = subprocess.check_output(command, text=True)
    assert re.findall(r"Platform: (\w+)\s+Version: ([\d.]+)", printed) == [("ios", "13.0")] * 2


def _tool(name: str) -> str:
    path = shutil.which(name)
    return path or missing(name, "apt-get install llvm")


def symbols(library: Path) -> tuple[set[str], set[str]]:
    """The symbols that the objects of an archive define, and those that they use beside them."""
    printed = subprocess.check_output([_tool("llvm-nm"), "-g", library], text=True)
    listed = [line.removesuffix(":").split() for line in printed.splitlines()]
    defined = {line[2] for line in listed if len(line) == 3}
    undefined = {line[1] for line in listed if line[:1] == ["U"]}
    return {name.removeprefix("_") for name in defined}, undefined - defined


@pytest.mark.parametrize(
    ("name", "platform"),
    [
        ("aarch64", "linux-aarch64"),
        ("macos-arm64", "macos-arm64"),
        ("windows-x86-64", "windows-x86-64"),
    ],
)
def test_a_runtime_that_was_not_fetched_is_named_with_its_command(
    name: str, platform: str, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runtimes, "folder", lambda: tmp_path / "nothing")
    with pytest.raises(LinkError) as caught:
        build.build(job(model, tmp_path / "out", name, flavour="vm"))
    assert caught.value.code == "link.runtime_missing"
    assert f"python -m compiler.runtimes fetch {platform}" in (caught.value.hint or "")
    assert not (tmp_path / "out").exists()
    build.build(job(model, tmp_path / "out", name))  # which by default needs none


def numerics(output: Path) -> dict[str, object]:
    document: dict[str, object] = json.loads((output / "numerics.json").read_text())
    return document


EMULATED = [
    (target.name, "standalone", add_and_divide) for target in CPUS if target.emulator is not None
]
EMULATED += [
    (target.name, "vm", add_and_divide)
    for target in BUNDLED
    if target.emulator and not target.platform.unseen
]
SORTED = [
    (architecture.entries[0].name, "standalone", sorting)
    for architecture in ARCHITECTURES
    if architecture.entries[0].emulator and not architecture.entries[0].platform.bare
]
"""One target of each emulated architecture that has a heap, which NonZero takes."""


@pytest.mark.parametrize(
    ("name", "flavour", "graph"),
    [
        pytest.param(
            *case, marks=with_c_library if needs_c_library(targets.resolve(case[0]).arch) else ()
        )
        for case in EMULATED + SORTED
    ],
)
def test_emulated_builds_agree_with_the_reference(
    name: str, flavour: str, graph: Callable[[], onnx.ModelProto], tmp_path: Path
) -> None:
    if why := emulator.explain_missing(targets.resolve(name), Flavour(flavour)):
        pytest.skip(why)
    (tmp_path / "m.onnx").write_bytes(graph().SerializeToString())
    asked = job(tmp_path / "m.onnx", tmp_path / "out", name, verify=True, flavour=flavour)
    manifest = build.build(asked)
    document = numerics(tmp_path / "out")
    assert (document["verdict"], document["status"], manifest.target["status"]) == (
        "passed",
        "emulated",
        "emulated",
    )
    points = document["points"]
    assert isinstance(points, list)
    assert {point["dims"]["batch"] for point in points} >= {1, 8}


def test_without_an_emulator_nothing_is_called_run(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(emulator, "_program", lambda arch: None)
    manifest = build.build(job(model, tmp_path / "out", "aarch64", verify=True))
    document = numerics(tmp_path / "out")
    assert (document["verdict"], manifest.target["status"]) == ("not_run", "compiled_only")
    assert "qemu-aarch64 is not installed" in str(document["reason"])


def test_the_manifest_reads_back(model: Path, tmp_path: Path) -> None:
    manifest = build.build(job(model, tmp_path / "out", "ios-arm64"))
    assert (
        Manifest.from_json(json.loads((tmp_path / "out" / "manifest.json").read_text())) == manifest
    )

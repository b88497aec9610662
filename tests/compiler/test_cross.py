"""Libraries for every processor of the registry: of the format and the machine that they say, complete or refused."""

import json
import struct
from pathlib import Path

import numpy as np
import pytest

from compiler import driver, runtimes, targets
from compiler.errors import LinkError
from compiler.messages import CompileJob
from compiler.runtimes.pins import PINS
from compiler.targets import Runtime, Target
from relaxd.contract.manifest import Manifest
from relaxd.contract.options import CompileOptions
from relaxd.contract.request import CompileRequest
from tests.compiler.graphs import add_and_divide

CPUS = [target for target in targets.registry() if target.device is None and target.name != "native"]
ELF_MACHINES = {"x86_64": 62, "aarch64": 183, "armv7l": 40, "riscv64": 243}
MACHO_ARM64 = 0x0100000C
COFF_X86_64 = 0x8664


def job(model: Path, output: Path, name: str, **options: bool) -> CompileJob:
    quick = CompileOptions(**{"verify": False, "profile": False, **options})
    request = CompileRequest.of(dims={"batch": (1, 8)}, options=quick).to_json()
    return CompileJob(str(model), request, name, str(output), "two words")


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "m.onnx"
    path.write_bytes(add_and_divide(rows=1).SerializeToString())
    return path


def first_object(archive: bytes) -> bytes:
    """The first member of an `ar` archive that is no index."""
    offset = 8
    while offset < len(archive):
        name, size = archive[offset : offset + 16].strip(), int(archive[offset + 48 : offset + 58])
        content = archive[offset + 60 : offset + 60 + size]
        if name.startswith(b"#1/"):
            length = int(name[3:])
            name, content = content[:length].rstrip(b"\0"), content[length:]
        if not name.startswith((b"/ ", b"//", b"__.SYMDEF")) and name != b"/":
            return content
        offset += 60 + size + size % 2
    raise AssertionError("the archive is empty")


def machine_of(code: bytes) -> tuple[str, int]:
    """Format and machine number in the headers of a library or an object."""
    if code[:4] == b"\x7fELF":
        return "elf", struct.unpack_from("<H", code, 18)[0]
    if code[:4] == b"\xcf\xfa\xed\xfe":
        return "macho", struct.unpack_from("<I", code, 4)[0]
    if code[:2] == b"MZ":
        return "coff", struct.unpack_from("<H", code, struct.unpack_from("<I", code, 60)[0] + 4)[0]
    raise AssertionError(f"neither ELF, Mach-O nor PE: {code[:8]!r}")


def expected(target: Target) -> tuple[str, int]:
    numbers = {"elf": ELF_MACHINES.get(target.arch, 0), "macho": MACHO_ARM64, "coff": COFF_X86_64}
    return target.platform.object_format.value, numbers[target.platform.object_format.value]


@pytest.mark.parametrize("target", CPUS, ids=lambda target: target.name)
def test_the_library_is_of_the_target(target: Target, model: Path, tmp_path: Path) -> None:
    manifest = driver.build(job(model, tmp_path / "out", target.name))
    library = (tmp_path / "out" / manifest.library).read_bytes()
    linked = target.platform.runtime is Runtime.LINKED
    assert machine_of(first_object(library) if linked else library) == expected(target)
    assert manifest.load.arch == target.arch
    assert manifest.load.os == target.platform.os
    assert manifest.target["status"] == "compiled_only"
    carried = [name for name in manifest.files if "tvm_runtime" in name]
    assert bool(carried) == (not linked)
    for name in carried:
        assert machine_of((tmp_path / "out" / name).read_bytes()) == expected(target)


def test_an_archive_has_symbols_of_its_own_and_a_header(model: Path, tmp_path: Path) -> None:
    manifest = driver.build(job(model, tmp_path / "out", "riscv64"))
    header = (tmp_path / "out" / "model.h").read_text()
    prefix = header.partition('_PREFIX "')[2].partition('"')[0]
    assert prefix.startswith("relaxd_two_words_")
    assert f"__tvm_ffi_{prefix}".encode() in (tmp_path / "out" / manifest.library).read_bytes()
    assert f"static inline int {prefix}open(TVMFFIObjectHandle *entry)" in header
    assert all(f"{spec.name}: {spec.text}" in header for spec in (*manifest.inputs, *manifest.outputs))


def test_a_runtime_that_was_not_fetched_is_named_with_its_command(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runtimes, "folder", lambda: tmp_path / "nothing")
    with pytest.raises(LinkError) as caught:
        driver.build(job(model, tmp_path / "out", "aarch64"))
    assert caught.value.code == "link.runtime_missing"
    assert "python -m compiler.runtimes fetch linux-aarch64" in (caught.value.hint or "")
    assert not (tmp_path / "out").exists()


def test_the_pins_are_of_this_compiler() -> None:
    from importlib import metadata

    for pin in PINS:
        assert {wheel.package: wheel.version for wheel in pin.wheels} == {
            name: metadata.version(name) for name in ("apache-tvm", "apache-tvm-ffi")
        }
        assert all(len(bytes.fromhex(wheel.sha256)) == 32 for wheel in pin.wheels)


def numerics(output: Path) -> dict[str, object]:
    found: dict[str, object] = json.loads((output / "numerics.json").read_text())
    return found


@pytest.mark.parametrize("name", ["aarch64", "aarch64-v8.2", "riscv64", "riscv64-v", "armv7"])
def test_emulated_builds_agree_with_the_reference(name: str, model: Path, tmp_path: Path) -> None:
    from compiler.emulation import emulator

    if why := emulator.lacking(targets.resolve(name)):
        pytest.skip(why)
    manifest = driver.build(job(model, tmp_path / "out", name, verify=True))
    found = numerics(tmp_path / "out")
    assert (found["verdict"], found["status"], manifest.target["status"]) == ("passed", "emulated", "emulated")
    points = found["points"]
    assert isinstance(points, list)
    assert {point["dims"]["batch"] for point in points} >= {1, 8}


def test_without_an_emulator_nothing_is_called_run(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from compiler.emulation import emulator

    monkeypatch.setattr(emulator, "_program", lambda arch: None)
    manifest = driver.build(job(model, tmp_path / "out", "aarch64", verify=True))
    found = numerics(tmp_path / "out")
    assert (found["verdict"], manifest.target["status"]) == ("not_run", "compiled_only")
    assert "qemu-aarch64 is not installed" in str(found["reason"])


def test_tensors_travel_to_the_driver_and_back(tmp_path: Path) -> None:
    from compiler.emulation import tensors

    arrays = [np.arange(6, dtype=np.float32).reshape(2, 3), np.array([True, False]), np.array(7, np.int64), np.zeros((0, 4), np.uint8)]
    tensors.write(tmp_path / "t", arrays)
    for got, want in zip(tensors.read(tmp_path / "t"), arrays, strict=True):
        assert (got.dtype, got.shape) == (want.dtype, want.shape)
        np.testing.assert_array_equal(got, want)


def test_the_manifest_reads_back(model: Path, tmp_path: Path) -> None:
    manifest = driver.build(job(model, tmp_path / "out", "ios-arm64"))
    assert Manifest.from_json(json.loads((tmp_path / "out" / "manifest.json").read_text())) == manifest

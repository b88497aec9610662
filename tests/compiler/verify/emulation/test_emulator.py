"""The command that brings what is missing to emulate a target is said."""

import dataclasses
import json
from pathlib import Path

import pytest

from compiler import runtimes, targets
from compiler.runtimes import archives, drivers
from compiler.targets import architectures
from compiler.verify.emulation import emulator, foreign
from compiler.verify.emulation.pc import bochs
from relaxd.contract.options import Flavour
from relaxd.loader.machine.host import Host

DYNAMIC, STATIC = targets.resolve("aarch64"), targets.resolve("riscv64")


@pytest.fixture(autouse=True)
def _all_there(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Every emulator is installed, with the libraries of C and C++ and both runtimes."""
    (tmp_path / "lib").mkdir()
    for name in ("libc.so.6", "libstdc++.so.6"):
        (tmp_path / "lib" / name).write_bytes(b"")
    arm = architectures.architecture_of("aarch64")
    emulation = dataclasses.replace(arm.emulation, sysroot=tmp_path)
    known = dataclasses.replace(arm, emulation=emulation)
    monkeypatch.setitem(architectures._BY_NAME, "aarch64", known)
    monkeypatch.setattr(emulator, "_program", lambda name: f"/bin/qemu-{name}")
    monkeypatch.setattr(runtimes, "present", lambda platform: True)
    monkeypatch.setattr(archives, "present", lambda platform: True)


@pytest.mark.parametrize("flavour", Flavour)
def test_a_dynamic_program_gets_its_c_library(flavour: Flavour, tmp_path: Path) -> None:
    qemu = emulator.find(DYNAMIC, flavour)
    assert isinstance(qemu, emulator.Emulator)
    assert qemu.command == ("/bin/qemu-aarch64", "-cpu", "cortex-a53", "-L", str(tmp_path))


def test_a_static_program_needs_none() -> None:
    qemu = emulator.find(STATIC)
    assert isinstance(qemu, emulator.Emulator)
    assert qemu.command == ("/bin/qemu-riscv64", "-cpu", "rv64")
    assert emulator.explain_missing(STATIC) is None


def test_a_target_that_nothing_emulates() -> None:
    assert emulator.find(targets.resolve("x86-64-v3")) == "no emulator is known for x86-64-v3"
    assert emulator.find(targets.resolve("metal")) == "no emulator is known for metal"
    host = {"kind": "llvm", "mtriple": "aarch64-unknown-linux-gnu"}
    raw = targets.resolve(json.dumps({"kind": "cuda", "arch": "sm_87", "host": host}))
    assert raw.emulator
    assert emulator.find(raw) == "no emulator is known for cuda on aarch64"
    host = {"kind": "llvm", "mtriple": "x86_64-unknown-linux-gnu", "mcpu": "x86-64-v4"}
    raw = targets.resolve(json.dumps({"kind": "opencl", "host": host}))
    assert emulator.find(raw) == "no emulator is known for opencl on x86_64"
    assert not emulator.runs_on_pc(raw)


@pytest.mark.parametrize("name", ["opencl-mali", "opencl-adreno"])
def test_a_device_gets_a_driver_of_the_emulated_processor(
    name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    target = targets.resolve(name)
    monkeypatch.setattr(drivers, "folder", lambda: tmp_path)
    why = "there is no OpenCL driver for aarch64: run `python -m compiler.runtimes driver`"
    assert emulator.explain_missing(target) == why
    driver = drivers.Driver(tmp_path / "opencl" / "aarch64")
    driver.linkers.mkdir(parents=True)
    (driver.linkers / "ld").touch()
    qemu = emulator.find(target)
    assert isinstance(qemu, emulator.Emulator)
    assert qemu.command[:5] == ("/bin/qemu-aarch64", "-cpu", "cortex-a53", "-L", str(driver.root))
    assert dict(qemu.to_report())["by"] == "pocl under qemu-aarch64"
    assert "the device" in (qemu.unseen or "")
    assert ("Android's C library" in (qemu.unseen or "")) == (name == "opencl-adreno")
    monkeypatch.setattr(emulator, "_program", lambda name: None)
    why = "qemu-aarch64 is not installed: install qemu-user-static"
    assert emulator.explain_missing(target) == why
    monkeypatch.setattr(emulator, "_program", lambda name: "/bin/qemu-aarch64")
    monkeypatch.setattr(runtimes, "present", lambda platform: False)
    assert f"run `{runtimes.COMMAND}`" in (emulator.explain_missing(target) or "")


@pytest.mark.parametrize("name", ["android-arm64", "macos-arm64", "ios-arm64"])
def test_programs_for_linux_run_libraries_of_other_systems(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(foreign, "_linker", lambda: "/bin/ld64.lld")
    qemu = emulator.find(targets.resolve(name))
    assert isinstance(qemu, emulator.Emulator)
    by, unseen = qemu.to_report()
    assert by == ("by", "qemu-aarch64")
    assert "C library" in unseen[1]
    why = emulator.explain_missing(targets.resolve(name), Flavour.VM)
    assert (why or "").startswith("no emulator runs TVM's runtime for")


@pytest.mark.parametrize("flavour", Flavour)
def test_an_emulated_pc_runs_libraries_for_wider_vectors(
    flavour: Flavour, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = targets.resolve("x86-64-v4-vnni")
    monkeypatch.setattr(emulator, "_has", lambda emulation, library: True)
    monkeypatch.setattr(bochs, "explain_missing", lambda: None)
    pc = emulator.find(target, flavour)
    assert isinstance(pc, emulator.Emulator)
    assert dict(pc.to_report()) == {
        "by": "Bochs with the processor corei7_icelake_u",
        "unseen": "more than one thread, and Linux's own kernel",
    }
    monkeypatch.setattr(emulator, "_has", lambda emulation, library: False)
    library = "libc.so.6" if flavour is Flavour.STANDALONE else "libstdc++.so.6"
    why = emulator.explain_missing(target, flavour)
    assert why == f"there is no {library} in /lib/x86_64-linux-gnu"


def test_without_bochs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bochs, "_program", lambda: None)
    why = emulator.explain_missing(targets.resolve("x86-64-v4"))
    assert why == "Bochs is not installed: install bochs bochs-term bochsbios vgabios"


@pytest.mark.parametrize(
    ("features", "why"),
    [
        ("+avx512vbmi", None),
        ("+avx512bf16,+adx", "no emulated PC has a processor with avx512_bf16"),
    ],
)
def test_a_raw_target_beyond_all_emulated_processors(
    features: str, why: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(emulator, "_has", lambda emulation, library: True)
    monkeypatch.setattr(bochs, "explain_missing", lambda: None)
    document = {"kind": "llvm", "mtriple": "x86_64-unknown-linux-gnu", "mcpu": "x86-64-v4"}
    raw = targets.resolve(json.dumps({**document, "mattr": features.split(",")}))
    assert emulator.explain_missing(raw) == why
    windows = targets.resolve(json.dumps({**document, "mtriple": "x86_64-pc-windows-gnu"}))
    assert not emulator.runs_on_pc(windows)


def test_a_library_for_windows_runs_on_this_processor(monkeypatch: pytest.MonkeyPatch) -> None:
    target = targets.resolve("windows-x86-64")
    machine = Host("x86_64", "linux", frozenset(target.isa), "2.36")
    monkeypatch.setattr(emulator, "_has", lambda emulation, library: True)
    monkeypatch.setattr(emulator, "this_host", lambda: machine)
    result = emulator.find(target)
    assert isinstance(result, emulator.Emulator)
    assert result.command == ("/lib64/ld-linux-x86-64.so.2",)
    assert result.to_report()[0] == ("by", "a program for Linux")
    monkeypatch.setattr(emulator, "this_host", lambda: dataclasses.replace(machine, arch="aarch64"))
    why = "this machine's processor is none for windows-x86-64"
    assert emulator.explain_missing(target) == why


def test_an_archive_for_apple_is_linked_by_another_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(foreign, "_linker", lambda: None)
    why = emulator.explain_missing(targets.resolve("ios-arm64"))
    assert why == "ld64.lld is not installed: install lld"
    assert emulator.explain_missing(targets.resolve("macos-arm64")) is None


@pytest.mark.parametrize("target", [DYNAMIC, STATIC], ids=lambda target: target.name)
def test_without_qemu(monkeypatch: pytest.MonkeyPatch, target: targets.Target) -> None:
    monkeypatch.setattr(emulator, "_program", lambda name: None)
    why = emulator.explain_missing(target)
    assert why == f"qemu-{target.arch} is not installed: install qemu-user-static"


def test_without_a_c_library(tmp_path: Path) -> None:
    (tmp_path / "lib" / "libstdc++.so.6").unlink()
    assert emulator.explain_missing(DYNAMIC) is None, "by default its library is of C alone"
    why = emulator.explain_missing(DYNAMIC, Flavour.VM)
    assert why == "there is no C++ library for aarch64: install libstdc++6-arm64-cross"
    (tmp_path / "lib" / "libc.so.6").unlink()
    why = emulator.explain_missing(DYNAMIC)
    assert why == "there is no C library for aarch64: install libstdc++6-arm64-cross"


def test_without_a_runtime(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runtimes, "present", lambda platform: False)
    monkeypatch.setattr(archives, "present", lambda platform: False)
    assert f"run `{runtimes.COMMAND}`" in (emulator.explain_missing(DYNAMIC, Flavour.VM) or "")
    assert f"run `{archives.COMMAND} riscv64`" in (
        emulator.explain_missing(STATIC, Flavour.VM) or ""
    )
    assert emulator.explain_missing(STATIC) is None, "by default its library needs no runtime"
    assert emulator.explain_missing(DYNAMIC) is None

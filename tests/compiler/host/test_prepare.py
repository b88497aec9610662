"""Files that builds share are there before a build, and a second preparation does nothing."""

import pytest

from compiler import targets
from compiler.host import prepare
from compiler.runtimes import linux, threads
from compiler.toolchain import zig
from compiler.verify.emulation import emulator, opencl
from compiler.verify.emulation.pc import kernel
from relaxd.contract.options import CompileOptions, Flavour


def test_a_target_is_prepared_once(monkeypatch: pytest.MonkeyPatch) -> None:
    target = targets.resolve("native")
    prepare.prepare(target, CompileOptions())
    assert threads.threads(target).is_file()
    monkeypatch.setattr(zig, "_zig", lambda *arguments, **settings: pytest.fail("built again"))
    prepare.prepare(target, CompileOptions())


@pytest.mark.parametrize(
    ("options", "programs"),
    [
        (CompileOptions(), {"riscv64": ("cc", "-O1", "-static", "-lm")}),
        (
            CompileOptions(flavour=Flavour.VM),
            {"riscv64": ("c++", "-O1", "-static")},
        ),
        (
            CompileOptions(flavour=Flavour.STANDALONE),
            {"riscv64": ("cc", "-O1", "-static", "-lm")},
        ),
        (CompileOptions(verify=False), {}),
    ],
)
def test_a_static_program_gets_its_libraries(
    options: CompileOptions, programs: dict[str, tuple[str, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A dynamic one runs with the emulator's, and a build that is not verified runs no program:
    minutes of compiling saved.
    """
    linked, asked = [], {}
    monkeypatch.setattr(linux, "stand_ins", lambda target: linked.append(target.platform.linker))
    monkeypatch.setattr(
        zig,
        "warm_up_program",
        lambda triple, language, arguments: asked.update({triple: (language, *arguments)}),
    )
    for name in ("threads", "helpers"):
        monkeypatch.setattr(threads, name, lambda target: None)
    monkeypatch.setattr(emulator, "explain_missing", lambda target, flavour: None)
    triples = {name: targets.resolve(name).platform.linker for name in ("aarch64", "riscv64")}
    for name in triples:
        prepare.prepare(targets.resolve(name), options)
    assert linked == [triples["aarch64"]]
    assert asked == {triples[name]: program for name, program in programs.items()}


def test_an_emulated_device_gets_its_runtime(monkeypatch: pytest.MonkeyPatch) -> None:
    """A library for a phone has none of its own."""
    asked = []
    monkeypatch.setattr(emulator, "explain_missing", lambda target, flavour: None)
    monkeypatch.setattr(opencl, "runtime_of", lambda target: asked.append(target.name))
    prepare.prepare(targets.resolve("opencl-adreno"), CompileOptions())
    prepare.prepare(targets.resolve("opencl-adreno"), CompileOptions(verify=False))
    assert asked == ["opencl-adreno"]


def test_an_emulated_pc_gets_its_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(emulator, "explain_missing", lambda target, flavour: None)
    prepare.prepare(targets.resolve("x86-64-v4"), CompileOptions())
    monkeypatch.setattr(zig, "_zig", lambda *arguments, **settings: pytest.fail("built again"))
    assert kernel.image().read_bytes()[510:512] == b"\x55\xaa"

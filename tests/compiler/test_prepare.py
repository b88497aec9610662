"""What builds share is there before a build, and a second preparation does nothing."""

import pytest

from compiler import prepare, targets
from compiler.runtimes import threads
from compiler.toolchain import zig


def test_a_target_is_prepared_once(monkeypatch: pytest.MonkeyPatch) -> None:
    target = targets.resolve("native")
    prepare.prepare(target)
    assert threads.threads(target).is_file()
    monkeypatch.setattr(zig, "_zig", lambda *arguments, **settings: pytest.fail("built again"))
    prepare.prepare(target)


def test_an_emulated_target_gets_the_libraries_of_its_programs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked = []
    monkeypatch.setattr(prepare.zig, "warm_up", lambda triple: asked.append(triple))
    monkeypatch.setattr(
        prepare.program.zig,
        "warm_up_program",
        lambda triple, **settings: asked.append((triple, settings["language"])),
    )
    for name in ("threads", "helpers"):
        monkeypatch.setattr(prepare.threads, name, lambda target: None)
    monkeypatch.setattr(prepare.emulator, "lacking", lambda target, flavour: None)
    for name in ("aarch64", "riscv64"):
        prepare.prepare(targets.resolve(name))
    arm, risc = (targets.resolve(name).platform.linker for name in ("aarch64", "riscv64"))
    # Programs with a library that needs no runtime, then those with TVM's.
    assert asked == [arm, (arm, "cc"), (arm, "cc"), (risc, "cc"), (risc, "c++")]

"""Which targets this machine can emulate: qemu's user mode, and the C library that a dynamic
program needs beside it.
"""

import shutil
from dataclasses import dataclass
from pathlib import Path

from compiler import runtimes
from compiler.runtimes import archives
from compiler.targets import Runtime, Target

_PROGRAMS = {"aarch64": "aarch64", "armv7l": "arm", "riscv64": "riscv64"}
_SYSROOTS = {"aarch64": Path("/usr/aarch64-linux-gnu")}
"""Where Debian's cross packages put a C library, and libstdc++ where that is installed."""


@dataclass(frozen=True)
class Emulator:
    """`command` runs a program of the target's platform that is given behind it."""

    command: tuple[str, ...]


def lacking(target: Target) -> str | None:
    """Why this machine cannot emulate the target; None when it can."""
    found = find(target)
    return found if isinstance(found, str) else None


def find(target: Target) -> Emulator | str:
    """The target's emulator, or what is missing for one."""
    if target.emulator is None:
        return f"no emulator is known for {target.name}"
    program = _program(target.arch)
    if program is None:
        return f"qemu-{_PROGRAMS[target.arch]} is not installed"
    if target.platform.runtime is Runtime.LINKED:
        if not archives.present(target.platform):
            return (
                f"TVM's runtime is not built for {target.name}: run `{archives.COMMAND} "
                f"{target.name}` once"
            )
        return Emulator((program, *target.emulator))
    sysroot = _SYSROOTS.get(target.arch)
    if sysroot is None or not (sysroot / "lib" / "libstdc++.so.6").is_file():
        return f"there is no C++ library for {target.arch}: install libstdc++6-arm64-cross"
    if not runtimes.present(target.platform):
        return (
            f"the TVM runtime for {target.platform.os} on {target.arch} is missing: run "
            f"`{runtimes.COMMAND}`"
        )
    return Emulator((program, *target.emulator, "-L", str(sysroot)))


def _program(arch: str) -> str | None:
    name = f"qemu-{_PROGRAMS[arch]}"
    return shutil.which(f"{name}-static") or shutil.which(name)

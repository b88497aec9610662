"""Which targets this machine can emulate: qemu's user mode, and the C library that a dynamic
program needs beside it; for micro-controllers a whole board.
"""

import shutil
from dataclasses import dataclass
from pathlib import Path

from compiler import runtimes
from compiler.runtimes import archives
from compiler.targets import Runtime, Target
from compiler.targets.architecture import Emulation
from compiler.targets.architectures import architecture_of
from compiler.verify.emulation import macho
from relaxd.contract.options import Flavour


@dataclass(frozen=True)
class Emulator:
    """`command` runs a program of the target's platform that is given behind it; `unseen` is what
    such a run shows nothing of.
    """

    command: tuple[str, ...]
    unseen: str | None = None

    def to_report(self) -> tuple[tuple[str, str], ...]:
        """What numerics.json says of it."""
        by = ("by", Path(self.command[0]).name.removesuffix("-static"))
        return (by, ("unseen", self.unseen)) if self.unseen else (by,)


def explain_missing(target: Target, flavour: Flavour | None = None) -> str | None:
    """Why this machine cannot emulate a library for the target, of its default backend unless
    `flavour` names another; None when it can.
    """
    result = find(target, flavour)
    return result if isinstance(result, str) else None


def find(target: Target, flavour: Flavour | None = None) -> Emulator | str:
    """The target's emulator, or what is missing for one; `flavour` as in `explain_missing`."""
    emulation = architecture_of(target.arch).emulation
    if target.emulator is None or emulation is None:
        return f"no emulator is known for {target.name}"
    program = _program(emulation.program)
    if program is None:
        return f"qemu-{emulation.program} is not installed: install {_package(emulation)}"
    if target.flavour(flavour) is Flavour.STANDALONE:
        return _without_runtime(target, emulation, program)
    if target.platform.unseen:
        return f"no emulator runs TVM's runtime for {target.platform.os}"
    if target.platform.runtime is Runtime.LINKED:
        if not archives.present(target.platform):
            return (
                f"TVM's runtime is not built for {target.name}: run `{archives.COMMAND} "
                f"{target.name}` once"
            )
        return Emulator((program, *target.emulator))
    sysroot = emulation.sysroot
    if sysroot is None or not (sysroot / "lib" / "libstdc++.so.6").is_file():
        return f"there is no C++ library for {target.arch}: {_install(emulation)}"
    if not runtimes.present(target.platform):
        return (
            f"the TVM runtime for {target.platform.os} on {target.arch} is missing: run "
            f"`{runtimes.COMMAND}`"
        )
    return Emulator((program, *target.emulator, "-L", str(sysroot)))


def _without_runtime(target: Target, emulation: Emulation, program: str) -> Emulator | str:
    """The emulator of programs that need a C library at most."""
    if lacking := macho.explain_missing(target):
        return lacking
    if target.platform.archived and not target.platform.unseen:
        return Emulator((program, *(target.emulator or ())))
    sysroot = emulation.sysroot
    if sysroot is None or not (sysroot / "lib" / "libc.so.6").is_file():
        return f"there is no C library for {target.arch}: {_install(emulation)}"
    command = (program, *(target.emulator or ()), "-L", str(sysroot))
    return Emulator(command, target.platform.unseen)


def _package(emulation: Emulation) -> str:
    """Debian's package of a machine's emulator, or of those of single programs."""
    machine = emulation.program.startswith("system-")
    return f"qemu-{emulation.program}" if machine else "qemu-user-static"


def _install(emulation: Emulation) -> str:
    package = emulation.package
    return f"install {package}" if package else "Debian has no package with one"


def _program(emulator: str) -> str | None:
    name = f"qemu-{emulator}"
    return shutil.which(f"{name}-static") or shutil.which(name)

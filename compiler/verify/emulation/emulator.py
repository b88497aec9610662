"""Which targets this machine can emulate: qemu's user mode, and the C library that a dynamic
program needs beside it; for micro-controllers a whole board, for AVX-512 a whole PC.
"""

import shutil
from dataclasses import dataclass
from pathlib import Path

from compiler import runtimes
from compiler.runtimes import archives
from compiler.targets import Runtime, Target
from compiler.targets.architecture import Emulation
from compiler.targets.architectures import architecture_of
from compiler.verify.emulation import foreign, opencl
from compiler.verify.emulation.pc import bochs
from relaxd.contract.options import Flavour
from relaxd.loader.machine.host import this_host

_PC_UNSEEN = "more than one thread, and Linux's own kernel"
_DEVICE_UNSEEN = "the device, and its own driver's compiler"


@dataclass(frozen=True)
class Emulator:
    """`command` runs a program of the target's platform that is given behind it; `unseen` is what
    such a run shows nothing of; `driver`: of the target's device.
    """

    command: tuple[str, ...]
    unseen: str | None = None
    driver: str | None = None

    def to_report(self) -> tuple[tuple[str, str], ...]:
        """The entries of numerics.json about it."""
        by = ("by", self._name())
        return (by, ("unseen", self.unseen)) if self.unseen else (by,)

    def _name(self) -> str:
        name = Path(self.command[0]).name
        if name == bochs.PROGRAM:
            return f"Bochs with the processor {self.command[1]}"
        if not name.startswith("qemu-"):
            return "a program for Linux"
        qemu = name.removesuffix("-static")
        return f"{self.driver} under {qemu}" if self.driver else qemu


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
    if target.device is not None:
        return _find_device(target, emulation)
    if target.platform.unseen and target.flavour(flavour) is not Flavour.STANDALONE:
        return f"no emulator runs TVM's runtime for {target.platform.os}"
    if runs_on_pc(target):
        return _find_pc(target, emulation, target.flavour(flavour))
    if emulation.program is None:
        return _find_processor(target, emulation)
    program = _program(emulation.program)
    if program is None:
        return f"qemu-{emulation.program} is not installed: install {_package(emulation)}"
    if target.flavour(flavour) is Flavour.STANDALONE:
        return _without_runtime(target, emulation, program)
    if target.platform.runtime is Runtime.LINKED:
        if not archives.present(target.platform):
            return (
                f"TVM's runtime is not built for {target.name}: run `{archives.COMMAND} "
                f"{target.name}` once"
            )
        return Emulator((program, *target.emulator))
    sysroot = emulation.sysroot
    if sysroot is None or not _has(emulation, "libstdc++.so.6"):
        return f"there is no C++ library for {target.arch}: {_install(emulation)}"
    if not runtimes.present(target.platform):
        return (
            f"the TVM runtime for {target.platform.os} on {target.arch} is missing: run "
            f"`{runtimes.COMMAND}`"
        )
    return Emulator((program, *target.emulator, "-L", str(sysroot)))


def runs_on_pc(target: Target) -> bool:
    """True if an emulated PC runs libraries for the target where this machine's processor does
    not.
    """
    emulation = architecture_of(target.arch).emulation
    alone = target.device is None and not target.platform.unseen
    return bool(target.emulator and emulation and emulation.pcs and alone)


def _find_device(target: Target, emulation: Emulation) -> Emulator | str:
    """Find what runs programs for a processor with a device beside it."""
    assert target.device is not None
    if target.device.name != opencl.DEVICE or emulation.program is None:
        return f"no emulator is known for {target.device.name} on {target.arch}"
    program = _program(emulation.program)
    if program is None:
        return f"qemu-{emulation.program} is not installed: install {_package(emulation)}"
    if missing := opencl.explain_missing(target):
        return missing
    unseen = ", ".join(filter(None, (target.platform.unseen, _DEVICE_UNSEEN)))
    command = (program, *(target.emulator or ()), *opencl.list_words(target))
    return Emulator(command, unseen, "pocl")


def _find_pc(target: Target, emulation: Emulation, flavour: Flavour) -> Emulator | str:
    (processor,) = target.emulator or ()
    if lacking := sorted(set(target.isa) - emulation.pcs[processor]):
        return f"no emulated PC has a processor with {', '.join(lacking)}"
    if missing := bochs.explain_missing():
        return missing
    library = "libc.so.6" if flavour is Flavour.STANDALONE else "libstdc++.so.6"
    if not _has(emulation, library):
        return f"there is no {library} in {emulation.libraries}"
    return Emulator((bochs.PROGRAM, processor), _PC_UNSEEN)


def _without_runtime(target: Target, emulation: Emulation, program: str) -> Emulator | str:
    """The emulator of programs that need a C library at most."""
    if lacking := foreign.explain_missing(target):
        return lacking
    if target.platform.archived and not target.platform.unseen:
        return Emulator((program, *(target.emulator or ())))
    sysroot = emulation.sysroot
    if sysroot is None or not _has(emulation, "libc.so.6"):
        return f"there is no C library for {target.arch}: {_install(emulation)}"
    command = (program, *(target.emulator or ()), "-L", str(sysroot))
    return Emulator(command, target.platform.unseen)


def _find_processor(target: Target, emulation: Emulation) -> Emulator | str:
    """Find what runs programs without an emulator: this machine, if it has such a processor."""
    machine = this_host()
    if (machine.arch, machine.os) != (target.arch, "linux") or not machine.isa >= set(target.isa):
        return f"this machine's processor is none for {target.name}"
    if not _has(emulation, "libc.so.6"):
        return f"there is no C library in {emulation.libraries}"
    # Files that a build writes cannot be executed in its sandbox; the loader reads and maps them.
    return Emulator((str(emulation.loader),), target.platform.unseen)


def _has(emulation: Emulation, library: str) -> bool:
    return emulation.libraries is not None and (emulation.libraries / library).is_file()


def _package(emulation: Emulation) -> str:
    """Debian's package of a machine's emulator, or of those of single programs."""
    return emulation.machines or "qemu-user-static"


def _install(emulation: Emulation) -> str:
    package = emulation.package
    return f"install {package}" if package else "Debian has no package with one"


def _program(emulator: str) -> str | None:
    name = f"qemu-{emulator}"
    return shutil.which(f"{name}-static") or shutil.which(name)

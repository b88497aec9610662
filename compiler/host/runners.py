"""Finds the runner of a new library on this machine, which verifies it, or why there is none."""

from pathlib import Path

from compiler.host.machine import cannot_run, in_software
from compiler.targets import ObjectFormat, Target, TargetStatus
from compiler.verify import sides
from compiler.verify.emulation import board, browser, emulator, engine, program
from relaxd.contract.options import Flavour
from relaxd.loader.bundles.bundle import read_manifest

_PATIENCE = 5.0


def runner_of(target: Target, flavour: Flavour, bundle: Path, scratch: Path) -> sides.Runner | str:
    """The runner of the bundle's library, which may be a program that is built in `scratch`; else
    why this machine cannot run the library. Raises LinkError.
    """
    reason = cannot_run(target)
    if reason is None:
        return sides.ON_SOFTWARE if in_software(target) else sides.NATIVE
    if target.launches:
        return _page(scratch / "page", reason)
    if target.platform.object_format is ObjectFormat.WASM:
        return _engine(target, scratch / "engine", reason)
    if target.emulator is None:
        return reason
    emulation_here = emulator.find(target, flavour)
    if isinstance(emulation_here, str):
        return f"{reason}; {emulation_here}"
    if target.platform.bare:
        return _board(bundle, target, scratch / "board", reason)
    folder = scratch / "emulated"
    folder.mkdir()
    # Its C++ library may have to be built first: that is no part of the time that running takes.
    if flavour is Flavour.STANDALONE:
        program.build_standalone(bundle, read_manifest(bundle).entry, target, folder / "program")
    else:
        program.build(bundle, target, folder / "program")
    spec = (("target", target.name), ("scratch", str(folder)))
    on_pc = emulator.runs_on_pc(target)
    return sides.Runner(
        "compiler.verify.run.pc" if on_pc else "compiler.verify.run.emulated",
        spec,
        TargetStatus.EMULATED,
        _PATIENCE,
        slow=on_pc or target.device is not None,
        emulation=emulation_here.to_report(),
    )


def _board(bundle: Path, target: Target, folder: Path, reason: str) -> sides.Runner | str:
    folder.mkdir()
    entry = read_manifest(bundle).entry
    if too_large := board.build(bundle, entry, target, folder / "program"):
        return f"{reason}; {too_large}"
    spec = (("target", target.name), ("scratch", str(folder)))
    return sides.Runner("compiler.verify.run.board", spec, TargetStatus.EMULATED, _PATIENCE)


def _engine(target: Target, folder: Path, reason: str) -> sides.Runner | str:
    """The runner of a WebAssembly module: an engine of such modules, and no emulator of one."""
    here = engine.choose(threads=target.threads)
    if isinstance(here, str):
        return f"{reason}; {here}"
    folder.mkdir()
    return sides.Runner(
        "compiler.verify.run.wasm",
        (("scratch", str(folder)),),
        TargetStatus.EXECUTED,
        _PATIENCE,
        emulation=here.report,
    )


def _page(folder: Path, reason: str) -> sides.Runner | str:
    """A page of a browser, on an adapter that is made of this machine's processor."""
    if lacking := browser.lacking():
        return f"{reason}; {lacking}"
    folder.mkdir()
    spec = (("scratch", str(folder)),)
    return sides.Runner(
        "compiler.verify.run.page", spec, TargetStatus.EMULATED, _PATIENCE, slow=True
    )

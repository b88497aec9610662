"""Capabilities of this installation for each target: compile it, emulate it, execute it."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from compiler import runtimes
from compiler.host.machine import cannot_run, in_software
from compiler.isolation.level import Level
from compiler.isolation.probe import level as sandbox_level
from compiler.targets import ObjectFormat, Runtime, Target, TargetStatus, registry
from compiler.targets.raw import KINDS
from compiler.verify.emulation import browser, emulator, engine
from relaxd.contract.options import Flavour


@dataclass(frozen=True)
class Capabilities:
    """compiles: the targets' `capability`; verifies: by target name, the status that a build which
    passes here gets; sandbox: how well builds are confined.
    """

    compiles: tuple[str, ...]
    verifies: Mapping[str, TargetStatus] = field(default_factory=dict)
    sandbox: Level = Level.NONE


def capabilities() -> Capabilities:
    """Return the capabilities of this machine as it is now."""
    able = [target for target in registry() if lacking(target) is None]
    raw = [f"raw-{kind}" for kind in KINDS if any(target.kind == kind for target in able)]
    verifies = {
        target.name: status
        for target in able
        if (status := verification(target)) is not TargetStatus.COMPILED_ONLY
    }
    return Capabilities((*(target.capability for target in able), *raw), verifies, sandbox_level())


def lacking(target: Target) -> str | None:
    """The reason why a build for the target, with its default backend, would fail here; None when
    it would not.
    """
    if target.device is not None and target.device.lacking:
        return target.device.lacking
    bundled = target.platform.runtime is Runtime.BUNDLED and target.flavours[0] is Flavour.VM
    if bundled and not runtimes.present(target.platform):
        return (
            f"the TVM runtime for {target.platform.os} on {target.arch} is not here: run "
            f"`{runtimes.COMMAND}`"
        )
    return None


def verification(target: Target) -> TargetStatus:
    """How a build for the target would be verified here."""
    if cannot_run(target) is None:
        return TargetStatus.EMULATED if in_software(target) else TargetStatus.EXECUTED
    if target.launches:
        return TargetStatus.COMPILED_ONLY if browser.lacking() else TargetStatus.EMULATED
    if target.platform.object_format is ObjectFormat.WASM:
        lacks = isinstance(engine.choose(threads=target.threads), str)
        return TargetStatus.COMPILED_ONLY if lacks else TargetStatus.EXECUTED
    return TargetStatus.COMPILED_ONLY if emulator.explain_missing(target) else TargetStatus.EMULATED

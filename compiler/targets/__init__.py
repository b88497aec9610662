"""The target registry: what each target's processor has, and what a bundle built for it needs.
Knows nothing of TVM.
"""

from compiler.errors import UnknownTarget
from compiler.targets import gpu
from compiler.targets.architectures import ARCHITECTURES, explain_unsupported, find_architecture
from compiler.targets.caches import host_caches
from compiler.targets.raw import is_raw, resolve_raw
from compiler.targets.target import (
    GLIBC,
    Device,
    ObjectFormat,
    Platform,
    Runtime,
    Target,
    TargetStatus,
)
from relaxd.errors import suggest
from relaxd.loader.machine.host import Host, this_host

__all__ = [
    "GLIBC",
    "NATIVE",
    "Device",
    "ObjectFormat",
    "Platform",
    "Runtime",
    "Target",
    "TargetStatus",
    "names",
    "registry",
    "resolve",
]

NATIVE = "native"
_CPUS = [target for architecture in ARCHITECTURES for target in architecture.entries]
_CPUS.sort(key=lambda target: target.platform.os != "linux")
_ENTRIES = {target.name: target for target in (*_CPUS, *gpu.ENTRIES)}


def names() -> tuple[str, ...]:
    """Every name that `resolve` takes, in the registry's order."""
    return (NATIVE, *_ENTRIES)


def resolve(name: str) -> Target:
    """The target with that name or TVM target JSON; `native` is detected on this machine; raises
    UnknownTarget.
    """
    if is_raw(name):
        return gpu.equip(resolve_raw(name))
    if name == NATIVE:
        return _native()
    if name not in _ENTRIES:
        hint = f"one of {', '.join(names())}, or a TVM target as JSON"
        why = explain_unsupported(name)
        raise UnknownTarget(
            f"unknown target {name!r}" + (f": {why}" if why else ""),
            reason="unknown",
            field="targets",
            hint=suggest(name, names(), hint),
            known=list(names()),
        )
    return gpu.equip(_ENTRIES[name])


def registry() -> tuple[Target, ...]:
    """Every target in the registry's order; `native` only on a machine that it supports."""
    native = _native_of(this_host())
    own = () if native is None else (native,)
    return (*own, *map(gpu.equip, _ENTRIES.values()))


def _native() -> Target:
    machine = this_host()
    target = _native_of(machine)
    if target is None:
        why = explain_unsupported(machine.arch) or "which the registry does not have"
        raise UnknownTarget(
            f"target 'native': this machine is {machine.arch}, {why}",
            reason="unsupported_host",
            field="targets",
            hint=f"name one of {', '.join(_ENTRIES)}",
        )
    return target


def _native_of(machine: Host) -> Target | None:
    architecture = find_architecture(machine.arch)
    if architecture is None or architecture.native is None:
        return None
    return architecture.native(machine.isa, host_caches())

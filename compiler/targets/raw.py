"""Targets that the registry does not have: TVM's target JSON, read where a name may stand."""

import json
from typing import Any

from compiler.errors import UnknownTarget
from compiler.targets import x86
from compiler.targets.architecture import Architecture
from compiler.targets.architectures import (
    ARCHITECTURES,
    architecture_of,
    explain_unsupported,
)
from compiler.targets.caches import Caches
from compiler.targets.target import Device, Options, Platform, Target, TargetStatus

_CACHES = Caches(l1=32 << 10, l2=256 << 10, l3=4 << 20)
_PLATFORMS = tuple(platform for known in ARCHITECTURES for platform in known.platforms)
_DEVICES = ("cuda", "opencl", "metal", "webgpu", "rocm")
KINDS = ("llvm", *_DEVICES)
"""TVM's target kinds that a raw target may have."""
_HINT = 'as in {"kind": "llvm", "mtriple": "x86_64-unknown-linux-gnu", "mcpu": "x86-64-v3"}'
_HOST_FIELDS = frozenset({"kind", "mtriple", "mcpu", "mattr"})


def is_raw(name: str) -> bool:
    """True if the text is JSON and not a name."""
    return name.lstrip().startswith("{")


def resolve_raw(text: str) -> Target:
    """The target that TVM's JSON describes, x86-64 Linux its host where it names none; raises
    UnknownTarget.
    """
    try:
        document = json.loads(text)
        kind = document["kind"]
        if not (isinstance(kind, str) and kind in KINDS):
            raise _refusal(f"kind {kind!r} is none of {', '.join(KINDS)}")
        name = json.dumps(document, sort_keys=True, separators=(",", ":"))
        return _host(name, document) if kind == "llvm" else _with_device(name, kind, document)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise _refusal(f"{type(error).__name__}: {error}") from error


def _with_device(name: str, kind: str, document: dict[str, Any]) -> Target:
    options = _options(document, frozenset({"kind", "host"}))
    host = _host(name, document.get("host") or {"kind": "llvm"})
    arch = document.get("arch")
    sm = arch if isinstance(arch, str) and arch.startswith("sm_") else None
    return Target(**{**_fields(host), "kind": kind, "device": Device(kind, options, sm)})


def _host(name: str, document: dict[str, Any]) -> Target:
    platform = _platform(document.get("mtriple") or x86.LINUX.triple)
    architecture = architecture_of(platform.arch)
    features = tuple(str(feature) for feature in document.get("mattr") or ())
    cpu = document.get("mcpu") or next(iter(architecture.cpus))
    registers = architecture.registers(cpu, features)
    emulated = architecture.emulation if platform.os == "linux" or platform.unseen else None
    return Target(
        name=name,
        kind="llvm",
        platform=platform,
        cpu=cpu,
        features=features,
        isa=_isa(platform, architecture, cpu, features),
        vector_bits=registers.bits,
        vector_registers=registers.count,
        caches=_CACHES,
        status=TargetStatus.COMPILED_ONLY,
        fma=registers.fma,
        llvm=_options(document, _HOST_FIELDS),
        emulator=emulated.widest if emulated else None,
        raw=True,
    )


def _platform(triple: str) -> Platform:
    arch, system = triple.partition("-")[0], triple.partition("-")[2]
    for platform in _PLATFORMS:
        known_arch, known_system = (
            platform.triple.partition("-")[0],
            platform.triple.partition("-")[2],
        )
        if arch in (known_arch, platform.arch) and _system(system) == _system(known_system):
            return platform
    why = explain_unsupported(triple)
    raise _refusal(
        f"mtriple {triple!r} is of no platform that can be linked for"
        + (f": {why}" if why else ""),
        known=[platform.triple for platform in _PLATFORMS],
    )


def _system(text: str) -> str:
    """The operating system that the rest of a triple names."""
    return next(
        (
            name
            for name in ("android", "windows", "ios", "macos", "darwin", "linux", "none")
            if name in text
        ),
        text,
    ).replace("darwin", "macos")


def _isa(
    platform: Platform, architecture: Architecture, cpu: str, features: tuple[str, ...]
) -> tuple[str, ...]:
    """The features that a loader can check; raises UnknownTarget where code could use more than
    those. Programs that link an archive know themselves.
    """
    if platform.archived or platform.os == "darwin":
        return ()
    promised = architecture.cpus.get(cpu)
    if promised is None:
        raise _refusal(
            f"mcpu {cpu!r} does not tell which features a loader must check for",
            hint=f"name one of {', '.join(architecture.cpus)}, and the rest as mattr",
        )
    added = [feature for feature in features if feature.startswith("+")]
    if unknown := [feature for feature in added if feature not in architecture.features]:
        raise _refusal(f"mattr {', '.join(unknown)} cannot be checked by a loader")
    return tuple(sorted({*promised, *(architecture.features[feature] for feature in added)}))


def _options(document: dict[str, Any], without: frozenset[str]) -> Options:
    options = sorted((key, value) for key, value in document.items() if key not in without)
    for key, value in options:
        if not isinstance(value, str | int | bool):
            raise _refusal(f"{key} must be a text, a number or a truth value")
    return tuple(options)


def _fields(target: Target) -> dict[str, Any]:
    return {name: getattr(target, name) for name in target.__dataclass_fields__}


def _refusal(
    why: str,
    hint: str = _HINT,
    **details: Any,
) -> UnknownTarget:
    return UnknownTarget(
        f"the target is not a TVM target that can be built for: {why}",
        reason="unusable",
        field="targets",
        hint=hint,
        **details,
    )

"""The target registry: what each target's processor has, and what a bundle built for it needs. Knows nothing of TVM."""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

from compiler.errors import UnknownTarget
from compiler.host import Caches, Host, host
from relaxd.contract.manifest import LoadContract

GLIBC = "2.28"


class TargetStatus(StrEnum):
    """What is known to work: run on such hardware, run under an emulator, or only compiled."""

    EXECUTED = "executed"
    EMULATED = "emulated"
    COMPILED_ONLY = "compiled_only"


@dataclass(frozen=True)
class Target:
    """A processor to compile for.

    kind: TVM's target kind; triple, cpu, features: LLVM's spelling (`+avx2`).
    isa: the same features as Linux spells them in /proc/cpuinfo: what the code may use.
    vector_bits, vector_registers: width and count of the vector registers; caches: sizes in bytes.
    status: what our tests did with such a target.
    """

    name: str
    kind: str
    triple: str
    arch: str
    cpu: str
    features: tuple[str, ...]
    isa: tuple[str, ...]
    vector_bits: int
    vector_registers: int
    caches: Caches
    status: TargetStatus

    @property
    def load(self) -> LoadContract:
        """What a machine must have; the runtime's version is added by whoever bundles one."""
        return LoadContract(arch=self.arch, isa=self.isa, libc=GLIBC)

    def missing_on(self, machine: Host) -> tuple[str, ...]:
        """What `machine` lacks to run this target's code, empty when it can."""
        if machine.arch != self.arch:
            return (self.arch,)
        return tuple(feature for feature in self.isa if feature not in machine.isa)

    def to_json(self) -> dict[str, Any]:
        """The manifest's `target` and the action key's part."""
        return {**asdict(self), "features": list(self.features), "isa": list(self.isa), "status": self.status.value}


_V2 = ("cx16", "lahf_lm", "pni", "popcnt", "sse4_1", "sse4_2", "ssse3")
_V3 = tuple(sorted((*_V2, "abm", "avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "movbe", "xsave")))
_V4 = tuple(sorted((*_V3, "avx512bw", "avx512cd", "avx512dq", "avx512f", "avx512vl")))

_EXTRAS = {
    "adx": "adx",
    "aes": "aes",
    "avx512_bf16": "avx512bf16",
    "avx512_bitalg": "avx512bitalg",
    "avx512_fp16": "avx512fp16",
    "avx512_vbmi2": "avx512vbmi2",
    "avx512_vnni": "avx512vnni",
    "avx512_vpopcntdq": "avx512vpopcntdq",
    "avx512ifma": "avx512ifma",
    "avx512vbmi": "avx512vbmi",
    "avx_vnni": "avxvnni",
    "gfni": "gfni",
    "pclmulqdq": "pclmul",
    "sha_ni": "sha",
    "vaes": "vaes",
    "vpclmulqdq": "vpclmulqdq",
}
"""Features beyond the levels that code generation may use: /proc/cpuinfo's name to LLVM's."""


def _x86(name: str, level: int, caches: Caches, extras: tuple[str, ...] = (), status: TargetStatus = TargetStatus.EXECUTED) -> Target:
    isa = {1: (), 2: _V2, 3: _V3, 4: _V4}[level]
    # LLVM prefers half-width vectors on x86-64-v4; kernels here are written for the full width.
    tuning = ("-prefer-256-bit",) if level == 4 else ()
    return Target(
        name=name,
        kind="llvm",
        triple="x86_64-unknown-linux-gnu",
        arch="x86_64",
        cpu="x86-64" if level == 1 else f"x86-64-v{level}",
        features=(*tuning, *(f"+{_EXTRAS[feature]}" for feature in extras)),
        isa=tuple(sorted((*isa, *extras))),
        vector_bits={1: 128, 2: 128, 3: 256, 4: 512}[level],
        vector_registers=32 if level == 4 else 16,
        caches=caches,
        status=status,
    )


def _native() -> Target:
    machine = host()
    if machine.arch != "x86_64":
        raise UnknownTarget(
            f"target 'native': this machine is {machine.arch}, which the registry does not have",
            reason="unsupported_host",
            field="targets",
            hint=f"name one of {', '.join(name for name in _ENTRIES if name != 'native')}",
        )
    level = max(level for level, isa in ((1, ()), (2, _V2), (3, _V3), (4, _V4)) if set(isa) <= machine.isa)
    allowed = [feature for feature in _EXTRAS if feature in machine.isa and (level == 4 or not feature.startswith("avx512"))]
    return _x86("native", level, machine.caches, tuple(sorted(allowed)))


_ENTRIES: dict[str, Callable[[], Target]] = {
    "native": _native,
    "x86-64-v2": lambda: _x86("x86-64-v2", 2, Caches(l1=32 << 10, l2=256 << 10, l3=4 << 20)),
    "x86-64-v3": lambda: _x86("x86-64-v3", 3, Caches(l1=32 << 10, l2=512 << 10, l3=8 << 20)),
    "x86-64-v4": lambda: _x86("x86-64-v4", 4, Caches(l1=32 << 10, l2=1 << 20, l3=16 << 20), status=TargetStatus.COMPILED_ONLY),
}


def names() -> tuple[str, ...]:
    """Every name that `resolve` takes, in the registry's order."""
    return tuple(_ENTRIES)


def resolve(name: str) -> Target:
    """The target of that name, `native` as found on this machine; raises UnknownTarget."""
    try:
        entry = _ENTRIES[name]
    except KeyError:
        known = ", ".join(_ENTRIES)
        raise UnknownTarget(
            f"unknown target {name!r}", reason="unknown", field="targets", hint=f"one of {known}", known=list(_ENTRIES)
        ) from None
    return entry()


def registry() -> tuple[Target, ...]:
    """Every target, in the registry's order; `native` is left out on a machine that it does not support."""
    supported = host().arch == "x86_64"
    return tuple(resolve(name) for name in _ENTRIES if name != "native" or supported)

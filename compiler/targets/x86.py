"""Targets with x86-64 processors: the microarchitecture levels, and what lies beyond them."""

from compiler.targets.caches import Caches
from compiler.targets.target import GLIBC, ObjectFormat, Platform, Runtime, Target, TargetStatus

LINUX = Platform(
    triple="x86_64-unknown-linux-gnu",
    arch="x86_64",
    os="linux",
    object_format=ObjectFormat.ELF,
    linker=f"x86_64-linux-gnu.{GLIBC}",
    runtime=Runtime.BUNDLED,
    libc=GLIBC,
)
WINDOWS = Platform(
    triple="x86_64-pc-windows-gnu",
    arch="x86_64",
    os="win32",
    object_format=ObjectFormat.COFF,
    linker="x86_64-windows-gnu",
    runtime=Runtime.BUNDLED,
)

_V2 = ("cx16", "lahf_lm", "pni", "popcnt", "sse4_1", "sse4_2", "ssse3")
_V3 = tuple(sorted((*_V2, "abm", "avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "movbe", "xsave")))
_V4 = tuple(sorted((*_V3, "avx512bw", "avx512cd", "avx512dq", "avx512f", "avx512vl")))
LEVELS: dict[int, tuple[str, ...]] = {1: (), 2: _V2, 3: _V3, 4: _V4}
"""The levels of the x86-64 psABI, features as /proc/cpuinfo spells them."""

EXTRAS = {
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

_SMALL = Caches(l1=32 << 10, l2=256 << 10, l3=4 << 20)
_DESKTOP = Caches(l1=32 << 10, l2=512 << 10, l3=8 << 20)
_SERVER = Caches(l1=32 << 10, l2=1 << 20, l3=16 << 20)


def x86(
    name: str,
    level: int,
    caches: Caches,
    *,
    extras: tuple[str, ...] = (),
    status: TargetStatus = TargetStatus.EXECUTED,
    platform: Platform = LINUX,
    resolved: str | None = None,
) -> Target:
    """A processor of the level, with `extras` of EXTRAS."""
    # LLVM prefers half-width vectors on x86-64-v4; kernels here are written for the full width.
    tuning = ("-prefer-256-bit",) if level == 4 else ()
    return Target(
        name=name,
        kind="llvm",
        platform=platform,
        cpu="x86-64" if level == 1 else f"x86-64-v{level}",
        features=(*tuning, *(f"+{EXTRAS[feature]}" for feature in extras)),
        isa=tuple(sorted((*LEVELS[level], *extras))),
        vector_bits={1: 128, 2: 128, 3: 256, 4: 512}[level],
        vector_registers=32 if level == 4 else 16,
        caches=caches,
        status=status,
        fma=level >= 3,
        resolved=resolved,
    )


def native_x86(isa: frozenset[str], caches: Caches) -> Target:
    """The highest level that the features reach, with every extra among them."""
    level = max(level for level, features in LEVELS.items() if set(features) <= isa)
    allowed = [
        feature
        for feature in EXTRAS
        if feature in isa and (level == 4 or not feature.startswith("avx512"))
    ]
    extras = tuple(sorted(allowed))
    base = "x86-64" if level == 1 else f"x86-64-v{level}"
    return x86("native", level, caches, extras=extras, resolved="+".join((base, *extras)))


ENTRIES = (
    x86("x86-64-v2", 2, _SMALL),
    x86("x86-64-v3", 3, _DESKTOP),
    x86("x86-64-v4", 4, _SERVER, status=TargetStatus.COMPILED_ONLY),
    x86("x86-64-v4-vnni", 4, _SERVER, extras=("avx512_vnni",), status=TargetStatus.COMPILED_ONLY),
)
WINDOWS_ENTRIES = (
    x86("windows-x86-64", 2, _SMALL, status=TargetStatus.COMPILED_ONLY, platform=WINDOWS),
)

"""Targets with x86-64 processors: the microarchitecture levels, and what lies beyond them."""

from pathlib import Path

from compiler.targets.abi import SINE_AND_COSINE, Abi, list_calls
from compiler.targets.architecture import (
    Architecture,
    BytePairUnit,
    Emulation,
    IntegerDot,
    IntegerUnit,
    PairUnit,
    Registers,
)
from compiler.targets.caches import Caches
from compiler.targets.target import GLIBC, ObjectFormat, Platform, Runtime, Target, TargetStatus

LINUX = Platform(
    triple="x86_64-unknown-linux-gnu",
    arch="x86_64",
    os="linux",
    object_format=ObjectFormat.ELF,
    linker=f"x86_64-linux-gnu.{GLIBC}",
    runtime=Runtime.BUNDLED,
    abi=Abi(("fs", "gs"), 16, 128, 4 << 10, list_calls(*SINE_AND_COSINE)),
    libc=GLIBC,
)
WINDOWS = Platform(
    triple="x86_64-pc-windows-gnu",
    arch="x86_64",
    os="win32",
    object_format=ObjectFormat.COFF,
    linker="x86_64-windows-gnu",
    runtime=Runtime.BUNDLED,
    abi=Abi(
        ("fs", "gs"),
        16,
        0,
        4 << 10,
        list_calls("ldexp", heap=("_aligned_free", "_aligned_malloc")),
    ),
    unseen="Windows and Microsoft's C runtime",
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
_UNLIKE = {
    "+sse4.1": "sse4_1",
    "+sse4.2": "sse4_2",
    "+bmi": "bmi1",
    "+lzcnt": "abm",
    "+sse3": "pni",
}
"""Features of the levels that LLVM and /proc/cpuinfo spell in two ways."""
_SPELLED = (
    {f"+{name}": name for name in LEVELS[4]}
    | {f"+{llvm}": linux for linux, llvm in EXTRAS.items()}
    | _UNLIKE
)

_SMALL = Caches(l1=32 << 10, l2=256 << 10, l3=4 << 20)
_DESKTOP = Caches(l1=32 << 10, l2=512 << 10, l3=8 << 20)
_SERVER = Caches(l1=32 << 10, l2=1 << 20, l3=16 << 20)
_REGISTERS = {
    1: Registers(128, 16, fma=False),
    2: Registers(128, 16, fma=False),
    3: Registers(256, 16),
    4: Registers(512, 32),
}


def _cpu(level: int) -> str:
    """LLVM's name of a processor of the level."""
    return "x86-64" if level == 1 else f"x86-64-v{level}"


def _registers(cpu: str, features: tuple[str, ...]) -> Registers:
    if cpu == _cpu(4) or "+avx512f" in features:
        return _REGISTERS[4]
    return _REGISTERS[3] if cpu == _cpu(3) or "+avx2" in features else _REGISTERS[2]


def x86(
    name: str,
    level: int,
    caches: Caches,
    *,
    extras: tuple[str, ...] = (),
    status: TargetStatus = TargetStatus.EXECUTED,
    platform: Platform = LINUX,
    resolved: str | None = None,
    emulator: tuple[str, ...] | None = None,
) -> Target:
    """A processor of the level, with `extras` of EXTRAS."""
    # LLVM prefers half-width vectors on x86-64-v4; kernels here are written for the full width.
    tuning = ("-prefer-256-bit",) if level == 4 else ()
    return Target(
        name=name,
        kind="llvm",
        platform=platform,
        cpu=_cpu(level),
        features=(*tuning, *(f"+{EXTRAS[feature]}" for feature in extras)),
        isa=tuple(sorted((*LEVELS[level], *extras))),
        vector_bits=_REGISTERS[level].bits,
        vector_registers=_REGISTERS[level].count,
        caches=caches,
        status=status,
        fma=_REGISTERS[level].fma,
        resolved=resolved,
        emulator=emulator,
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
    resolved = "+".join((_cpu(level), *extras))
    return x86("native", level, caches, extras=extras, resolved=resolved)


_LINUX_ENTRIES = (
    x86("x86-64-v2", 2, _SMALL),
    x86("x86-64-v3", 3, _DESKTOP),
    x86(
        "x86-64-v4",
        4,
        _SERVER,
        status=TargetStatus.EMULATED,
        emulator=("corei7_skylake_x",),
    ),
    x86(
        "x86-64-v4-vnni",
        4,
        _SERVER,
        extras=("avx512_vnni",),
        status=TargetStatus.EMULATED,
        emulator=("corei7_icelake_u",),
    ),
)
_WINDOWS_ENTRIES = (
    x86(
        "windows-x86-64",
        2,
        _SMALL,
        status=TargetStatus.EMULATED,
        platform=WINDOWS,
        emulator=(),
    ),
)

_SKYLAKE_X = frozenset({*_V4, "adx", "aes", "pclmulqdq"})
_ICE_LAKE = _SKYLAKE_X | {
    *("avx512_bitalg", "avx512_vbmi2", "avx512_vnni", "avx512_vpopcntdq", "avx512ifma"),
    *("avx512vbmi", "gfni", "sha_ni", "vaes", "vpclmulqdq"),
}
"""Bochs's names of processors, without VNNI and with it, stand in the entries above."""

_BYTES_512 = IntegerDot("llvm.x86.avx512.vpdpbusd.512", 4, "uint8", "int8", True, rows=12)
_BYTES_256 = IntegerDot("llvm.x86.avx512.vpdpbusd.256", 4, "uint8", "int8", True)
_PAIRS_512 = IntegerDot("llvm.x86.avx512.pmaddw.d.512", 2, "int16", "int16", False, rows=12)
_PAIRS_256 = IntegerDot("llvm.x86.avx2.pmadd.wd", 2, "int16", "int16", False)
_PAIRS_128 = IntegerDot("llvm.x86.sse2.pmadd.wd", 2, "int16", "int16", False)

X86_64 = Architecture(
    name="x86_64",
    entries=(*_LINUX_ENTRIES, *_WINDOWS_ENTRIES),
    platforms=(LINUX, WINDOWS),
    cpus={_cpu(level): features for level, features in LEVELS.items()},
    features=_SPELLED,
    registers=_registers,
    native=native_x86,
    integer_dots=(
        IntegerUnit(512, "avx512_vnni", _BYTES_512),
        IntegerUnit(256, "avx_vnni", _BYTES_256),
        IntegerUnit(512, "avx512bw", _PAIRS_512),
        IntegerUnit(256, "avx2", _PAIRS_256),
        IntegerUnit(128, "sse4_1", _PAIRS_128),
    ),
    # Intel's processors from Sapphire Rapids on have AVX512-FP16. They begin a `vdpbf16ps` every
    # second cycle, and two multiply-adds of float32 in each: 95 and 190 GFLOP/s of a thread.
    pairs=(PairUnit(512, "avx512_bf16", "llvm.x86.avx512bf16.dpbf16ps.512", slow="avx512_fp16"),),
    byte_pairs=(
        BytePairUnit(
            256,
            "avx2",
            multiply="llvm.x86.avx2.pmadd.ub.sw",
            add="llvm.x86.avx2.pmadd.wd",
            signs="llvm.x86.avx2.psign.b",
        ),
        BytePairUnit(
            128,
            "ssse3",
            multiply="llvm.x86.ssse3.pmadd.ub.sw.128",
            add="llvm.x86.sse2.pmadd.wd",
            signs="llvm.x86.ssse3.psign.b.128",
        ),
    ),
    # Where two hardware threads share a core its decoder feeds each at half speed, and instructions
    # count: four steps of a sum in a row take a fifth fewer of them than one.
    unroll=4,
    emulation=Emulation(
        None,
        widest=("corei7_icelake_u",),
        linker=LINUX.linker,
        loader="/lib64/ld-linux-x86-64.so.2",
        sysroot=Path("/"),
        folder="lib/x86_64-linux-gnu",
        pcs={"corei7_skylake_x": _SKYLAKE_X, "corei7_icelake_u": _ICE_LAKE},
    ),
)

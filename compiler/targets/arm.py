"""Targets with ARM processors: servers, boards, phones and Macs."""

from pathlib import Path

from compiler.targets.abi import ARM_RUNTIME, INSTRUCTIONS, SINE_AND_COSINE, Abi, list_calls
from compiler.targets.architecture import (
    Architecture,
    Emulation,
    IntegerDot,
    IntegerUnit,
    PairUnit,
    Registers,
)
from compiler.targets.caches import Caches
from compiler.targets.target import (
    GLIBC,
    ObjectFormat,
    Platform,
    Runtime,
    Target,
    TargetStatus,
)

_APPLE_ABI = Abi(
    reserved=("w18", "x18", "tpidr_el0", "tpidrro_el0"),
    stack=16,
    red_zone=128,
    page=16 << 10,
    calls=list_calls(
        *("__extendhfsf2", "__sincos_stret", "__sincosf_stret", "__truncsfhf2"),
        *("bzero", "memset_pattern16"),
    ),
)

LINUX = Platform(
    triple="aarch64-unknown-linux-gnu",
    arch="aarch64",
    os="linux",
    object_format=ObjectFormat.ELF,
    linker=f"aarch64-linux-gnu.{GLIBC}",
    runtime=Runtime.BUNDLED,
    abi=Abi(("tpidr_el0",), 16, 0, 64 << 10, list_calls(*SINE_AND_COSINE)),
    libc=GLIBC,
)
ARMV7 = Platform(
    triple="armv7-unknown-linux-gnueabihf",
    arch="armv7l",
    os="linux",
    object_format=ObjectFormat.ELF,
    linker="arm-linux-musleabihf",
    runtime=Runtime.LINKED,
    # Coprocessor 15's register 13 is the thread pointer.
    abi=Abi(("c13",), 8, 0, 4 << 10, list_calls(*INSTRUCTIONS, *SINE_AND_COSINE, *ARM_RUNTIME)),
)
ANDROID = Platform(
    # Of three parts, LLVM takes `linux` for the vendor, and sees no Android, which reserves x18.
    triple="aarch64-unknown-linux-android24",
    arch="aarch64",
    os="android",
    object_format=ObjectFormat.ELF,
    linker="aarch64-linux-android",
    runtime=Runtime.LINKED,
    abi=Abi(("w18", "x18", "tpidr_el0"), 16, 0, 16 << 10, list_calls(*SINE_AND_COSINE)),
    unseen="Android's C library",
)
IOS = Platform(
    triple="arm64-apple-ios13.0",
    arch="aarch64",
    os="ios",
    object_format=ObjectFormat.MACHO,
    linker="aarch64-ios.13.0",
    runtime=Runtime.LINKED,
    abi=_APPLE_ABI,
    unseen="dyld and Apple's C library",
)
MACOS = Platform(
    triple="arm64-apple-macosx11.0.0",
    arch="aarch64",
    os="darwin",
    object_format=ObjectFormat.MACHO,
    linker="aarch64-macos.11.0",
    runtime=Runtime.BUNDLED,
    abi=_APPLE_ABI,
    unseen="dyld and Apple's C library",
)

_PHONE = Caches(l1=32 << 10, l2=256 << 10, l3=2 << 20)
_BOARD = Caches(l1=32 << 10, l2=512 << 10, l3=0)
_SERVER = Caches(l1=64 << 10, l2=1 << 20, l3=16 << 20)
_APPLE = Caches(l1=64 << 10, l2=4 << 20, l3=8 << 20)

V8_2 = ("asimd", "asimddp", "asimdhp", "atomics", "fp", "fphp")
"""What `aarch64-v8.2` takes for granted, as /proc/cpuinfo spells it."""
V8_2_FEATURES = ("+v8.2a", "+neon", "+dotprod", "+fullfp16", "+lse")

_SPELLED = {
    "+neon": "asimd",
    "+fp-armv8": "fp",
    "+dotprod": "asimddp",
    "+fullfp16": "asimdhp",
    "+lse": "atomics",
    "+crc": "crc32",
    "+aes": "aes",
    "+sha2": "sha2",
    "+i8mm": "i8mm",
    "+bf16": "bf16",
    "+sve": "sve",
    "+sve2": "sve2",
}
"""LLVM's features of a 64-bit ARM processor, and what /proc/cpuinfo calls them."""


def aarch64(
    name: str,
    caches: Caches,
    platform: Platform,
    *,
    cpu: str = "generic",
    features: tuple[str, ...] = ("+neon",),
    isa: tuple[str, ...] = (),
    status: TargetStatus = TargetStatus.COMPILED_ONLY,
    emulator: tuple[str, ...] | None = None,
    resolved: str | None = None,
) -> Target:
    """A 64-bit ARM processor with 32 vector registers of 128 bits."""
    return Target(
        name=name,
        kind="llvm",
        platform=platform,
        cpu=cpu,
        features=features,
        isa=isa,
        vector_bits=128,
        vector_registers=32,
        caches=caches,
        status=status,
        emulator=emulator,
        resolved=resolved,
    )


def native_aarch64(isa: frozenset[str], caches: Caches) -> Target:
    """`aarch64-v8.2` where the features reach it, with bfloat16 where that is among them; else
    `aarch64`.
    """
    if set(V8_2) <= isa:
        extras = tuple(feature for feature in ("bf16",) if feature in isa)
        return aarch64(
            "native",
            caches,
            LINUX,
            features=(*V8_2_FEATURES, *(f"+{feature}" for feature in extras)),
            isa=tuple(sorted((*V8_2, *extras))),
            resolved="+".join(("aarch64-v8.2", *extras)),
        )
    return aarch64("native", caches, LINUX, isa=("asimd", "fp"), resolved="aarch64")


_LINUX_ENTRIES = (
    aarch64(
        "aarch64",
        _BOARD,
        LINUX,
        isa=("asimd", "fp"),
        status=TargetStatus.EMULATED,
        emulator=("-cpu", "cortex-a53"),
    ),
    aarch64(
        "aarch64-v8.2",
        _SERVER,
        LINUX,
        features=V8_2_FEATURES,
        isa=V8_2,
        status=TargetStatus.EMULATED,
        emulator=("-cpu", "neoverse-n1"),
    ),
)
_DEVICE_ENTRIES = (
    aarch64(
        "android-arm64",
        _PHONE,
        ANDROID,
        isa=("asimd", "fp"),
        status=TargetStatus.EMULATED,
        emulator=("-cpu", "cortex-a53"),
    ),
    aarch64(
        "ios-arm64",
        _APPLE,
        IOS,
        cpu="apple-a12",
        status=TargetStatus.EMULATED,
        emulator=("-cpu", "max"),
    ),
    aarch64(
        "macos-arm64",
        _APPLE,
        MACOS,
        cpu="apple-m1",
        status=TargetStatus.EMULATED,
        emulator=("-cpu", "max"),
    ),
)


def _registers(cpu: str, features: tuple[str, ...]) -> Registers:
    return Registers(128, 32)


AARCH64 = Architecture(
    name="aarch64",
    entries=(*_LINUX_ENTRIES, *_DEVICE_ENTRIES),
    platforms=(ANDROID, LINUX, IOS, MACOS),
    cpus={"generic": ("asimd", "fp")},
    features=_SPELLED,
    registers=_registers,
    native=native_aarch64,
    # One step of a sum at a time: for more LLVM loads a vector of factors for each row, and runs
    # out of registers, as it does where a product takes a register before it is added.
    unroll=1,
    integer_dots=(
        IntegerUnit(
            128,
            "asimddp",
            IntegerDot("llvm.aarch64.neon.sdot.v4i32.v16i8", 4, "int8", "int8", True),
        ),
    ),
    pairs=(PairUnit(128, "bf16", "llvm.aarch64.neon.bfdot.v4f32.v8bf16"),),
    emulation=Emulation(
        "aarch64",
        widest=("-cpu", "max"),
        linker=LINUX.linker,
        loader="/lib/ld-linux-aarch64.so.1",
        sysroot=Path("/usr/aarch64-linux-gnu"),
        package="libstdc++6-arm64-cross",
    ),
)


def _registers_of_armv7(cpu: str, features: tuple[str, ...]) -> Registers:
    return Registers(128, 16)


_ARMV7_ENTRY = Target(
    name="armv7",
    kind="llvm",
    platform=ARMV7,
    cpu="generic",
    features=("+neon", "+vfp4"),
    isa=("neon", "vfpv4"),
    vector_bits=128,
    vector_registers=16,
    caches=_BOARD,
    status=TargetStatus.EMULATED,
    llvm=(("mfloat-abi", "hard"),),
    emulator=("-cpu", "cortex-a15"),
)
ARMV7L = Architecture(
    name="armv7l",
    entries=(_ARMV7_ENTRY,),
    platforms=(ARMV7,),
    cpus={"generic": ()},
    features={"+neon": "neon", "+vfp4": "vfpv4"},
    registers=_registers_of_armv7,
    emulation=Emulation("arm", widest=("-cpu", "max")),
)

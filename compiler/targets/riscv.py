"""Targets with RISC-V processors: of 64 bits under Linux, with and without vectors, and of 32 bits
on boards without an operating system.
"""

from compiler.targets.abi import GCC_RUNTIME, INSTRUCTIONS, SINE_AND_COSINE, Abi, list_calls
from compiler.targets.architecture import (
    Architecture,
    Board,
    Emulation,
    IntegerDot,
    IntegerUnit,
    Registers,
)
from compiler.targets.caches import Caches
from compiler.targets.target import ObjectFormat, Options, Platform, Runtime, Target, TargetStatus

LINUX = Platform(
    triple="riscv64-unknown-linux-gnu",
    arch="riscv64",
    os="linux",
    object_format=ObjectFormat.ELF,
    linker="riscv64-linux-musl",
    runtime=Runtime.LINKED,
    abi=Abi(("gp", "tp"), 16, 0, 4 << 10, list_calls(*INSTRUCTIONS, *SINE_AND_COSINE)),
)

_BOARD = Caches(l1=32 << 10, l2=512 << 10, l3=0)
_GC = ("+m", "+a", "+f", "+d", "+c")
_ABI: Options = (("mabi", "lp64d"),)


def _riscv64(
    name: str, features: tuple[str, ...], isa: tuple[str, ...], vector_bits: int, emulator: str
) -> Target:
    return Target(
        name=name,
        kind="llvm",
        platform=LINUX,
        cpu="generic-rv64",
        features=features,
        isa=isa,
        vector_bits=vector_bits,
        vector_registers=32,
        caches=_BOARD,
        status=TargetStatus.EMULATED,
        llvm=_ABI,
        emulator=("-cpu", emulator),
    )


def _registers(cpu: str, features: tuple[str, ...]) -> Registers:
    return Registers(128 if "+v" in features else 0, 32)


_SPELLED = {f"+{letter}": letter for letter in "macfdv"}
_VECTORS = "rv64,v=true,vlen=128"

RISCV64 = Architecture(
    name="riscv64",
    entries=(
        _riscv64("riscv64", _GC, ("a", "c", "d", "f", "i", "m"), 0, "rv64"),
        _riscv64("riscv64-v", (*_GC, "+v"), ("a", "c", "d", "f", "i", "m", "v"), 128, _VECTORS),
    ),
    platforms=(LINUX,),
    cpus={"generic": ("i",)},
    features=_SPELLED,
    registers=_registers,
    emulation=Emulation("riscv64", widest=("-cpu", _VECTORS)),
)

BARE = Platform(
    triple="riscv32-unknown-none-elf",
    arch="riscv32",
    os="none",
    object_format=ObjectFormat.ELF,
    linker="riscv32-freestanding-none",
    runtime=Runtime.NONE,
    abi=Abi(("gp", "tp"), 16, 0, 0, list_calls(*INSTRUCTIONS, *GCC_RUNTIME, heap=())),
)

_RAM = Caches(l1=16 << 10, l2=64 << 10, l3=0)
"""There are no caches, or small ones: what a kernel works on should be a part of the RAM."""

_IMC, _IMAFC = ("+m", "+c"), ("+m", "+a", "+f", "+c")
_EMULATED = "rv32,a=false,f=false,d=false"
_EMULATED_WITH_FLOATS = "rv32,d=false"


def _rv32(
    name: str, features: tuple[str, ...], isa: tuple[str, ...], abi: str, processor: str
) -> Target:
    registers = _registers_of_rv32("generic-rv32", features)
    return Target(
        name=name,
        kind="llvm",
        platform=BARE,
        cpu="generic-rv32",
        features=features,
        isa=isa,
        vector_bits=0,
        vector_registers=registers.count,
        caches=_RAM,
        status=TargetStatus.EMULATED,
        fma=registers.fma,
        # TVM would warn that it does not know the width of vectors.
        llvm=(("mabi", abi), ("vector-width", 128)),
        emulator=("-machine", "virt", "-cpu", processor, "-bios", "none"),
    )


def _registers_of_rv32(cpu: str, features: tuple[str, ...]) -> Registers:
    """Floats have 32 registers of their own, or share those of integers; kernels take registers two
    at a time.
    """
    return Registers(0, 16) if "+f" in features else Registers(0, 12, fma=False)


def _flag(features: tuple[str, ...]) -> str:
    return "-mcpu=generic_rv32" + "".join(features)


_BYTES = IntegerDot(None, 1, "int16", "int8", adds=True, scalar=True)
_HALVES = IntegerDot(None, 1, "int16", "int16", adds=True, scalar=True)
"""A multiplication and an addition; loads widen their integers."""

RISCV32 = Architecture(
    name="riscv32",
    entries=(
        _rv32("rv32imc", _IMC, ("c", "i", "m"), "ilp32", _EMULATED),
        _rv32("rv32imafc", _IMAFC, ("a", "c", "f", "i", "m"), "ilp32f", _EMULATED_WITH_FLOATS),
    ),
    # The calling convention follows from the features, which a triple does not tell.
    platforms=(),
    cpus={"generic-rv32": ("i",)},
    features=_SPELLED,
    registers=_registers_of_rv32,
    integer_dots=(IntegerUnit(0, "m", _BYTES), IntegerUnit(0, "m", _HALVES)),
    emulation=Emulation("system-riscv32", widest=(), machines="qemu-system-misc"),
    board=Board(
        library="riscv32-linux-musl",
        headers="riscv32",
        processor=lambda target: _flag(target.features),
        linked=lambda target: _flag(target.features),
    ),
)

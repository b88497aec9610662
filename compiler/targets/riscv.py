"""Targets with 64-bit RISC-V processors, with and without vectors."""

from compiler.targets.abi import INSTRUCTIONS, SINE_AND_COSINE, Abi, list_calls
from compiler.targets.architecture import Architecture, Emulation, Registers
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

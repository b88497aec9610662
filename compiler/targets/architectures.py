"""The architectures that the compiler knows, in the order of the registry."""

from compiler.targets import arm, cortex_m, riscv, wasm, x86
from compiler.targets.architecture import Architecture, Board
from compiler.targets.target import Target

ARCHITECTURES = (
    x86.X86_64,
    arm.AARCH64,
    arm.ARMV7L,
    riscv.RISCV64,
    wasm.WASM32,
    cortex_m.CORTEX_M,
    riscv.RISCV32,
)

_BIG_ENDIAN = (
    *("aarch64_be", "armeb", "thumbeb", "mips", "mips64", "powerpc", "powerpc64", "ppc", "ppc64"),
    *("s390x", "sparc", "sparc64", "sparcv9", "riscv32be", "riscv64be", "m68k"),
)
_UNSUPPORTED = {
    **dict.fromkeys(("i386", "i486", "i586", "i686", "x86"), "32-bit x86 is not supported"),
    **dict.fromkeys(
        _BIG_ENDIAN, "big-endian processors are not supported: files of weights are little-endian"
    ),
    "riscv32": "of RISC-V's 32-bit processors there are rv32imc and rv32imafc",
    "xtensa": "LLVM makes no code for Xtensa here",
}
"""Processors that somebody may name, and why there is no target for them."""

_BY_NAME = {architecture.name: architecture for architecture in ARCHITECTURES}


def find_architecture(name: str) -> Architecture | None:
    """The architecture that `uname -m` calls so; None for one that the compiler does not know."""
    return _BY_NAME.get(name)


def explain_unsupported(name: str) -> str | None:
    """Why there is no target for a processor, which begins a triple or a target's name; None for
    one that nothing is known of.
    """
    words = (name, name.replace("x86-64", "x86_64").partition("-")[0])
    return next((_UNSUPPORTED[word] for word in words if word in _UNSUPPORTED), None)


def board_of(target: Target) -> Board:
    """The words for programs of a target without an operating system."""
    board = architecture_of(target.arch).board
    assert board is not None, f"{target.name} has an operating system"
    return board


def architecture_of(name: str) -> Architecture:
    """The architecture of a target that the registry made; raises KeyError for any other name."""
    return _BY_NAME[name]

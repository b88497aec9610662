"""The rules that machine code keeps to on a platform, and the functions that it may call there."""

from dataclasses import dataclass

_MEMORY = ("memcpy", "memmove", "memset")
_HEAP = ("free", "posix_memalign")
_KERNELS = (
    *("acos", "acosh", "asin", "asinh", "atan", "atanh", "cos", "cosh", "erf", "exp", "fmod"),
    *("log", "pow", "sin", "sinh", "tan", "tanh"),
)
"""The functions of doubles that kernels call, and of floats by the same name with an f; others they
compute themselves.
"""
_INSTRUCTIONS = ("ceil", "floor", "fma", "nearbyint", "rint", "round", "sqrt", "trunc")

SINE_AND_COSINE = ("sincos", "sincosf")
"""What LLVM makes of a sine and a cosine of one number, where the C library has it."""
INSTRUCTIONS = (*_INSTRUCTIONS, *(f"{name}f" for name in _INSTRUCTIONS))
"""What some processors have instructions for."""
ARM_RUNTIME = ("__aeabi_*",)
"""The run-time ABI for 32-bit ARM, which every toolchain for it has: integer division, doubles."""

_SOFT_FLOATS = ("add", "sub", "mul", "div", "eq", "ne", "lt", "le", "gt", "ge", "unord")
_CONVERSIONS = (
    *("fix{0}si", "fix{0}di", "fixuns{0}si", "fixuns{0}di"),
    *("floatsi{0}", "floatdi{0}", "floatunsi{0}", "floatundi{0}"),
)


def _soft(kind: str) -> tuple[str, ...]:
    """The functions that compute with floats of a kind (`sf`, `df`), as compilers name them."""
    compared = _SOFT_FLOATS[4:]
    named = [f"{name}{kind}{2 if name in compared else 3}" for name in _SOFT_FLOATS]
    return (*named, *(name.format(kind) for name in _CONVERSIONS))


GCC_RUNTIME = tuple(
    f"__{name}"
    for name in (
        *("divdi3", "moddi3", "udivdi3", "umoddi3"),
        *(*_soft("sf"), *_soft("df"), "extendsfdf2", "truncdfsf2", "extendhfsf2", "truncsfhf2"),
    )
)
"""What GCC's run-time library and LLVM's compute for processors of 32 bits, by the same names:
divisions of 64 bits, and the floats that the processor does not have.
"""


@dataclass(frozen=True)
class Abi:
    """The rules that code for a platform keeps to, beside the features of its processor.

    reserved: registers, as LLVM's disassembler writes them, that no code touches. The thread
    pointer is among them: libraries have no thread-local variables, under no model of those.
    stack: the stack pointer is always a multiple of so many bytes.
    red_zone: how many bytes below the stack pointer code may use, since interrupts spare them.
    page: segments lie at multiples of so many bytes, of an archive's once a program links it; 0
    without an operating system.
    calls: the functions that a library without a runtime may call, by name or by a pattern.
    """

    reserved: tuple[str, ...]
    stack: int
    red_zone: int
    page: int
    calls: tuple[str, ...]


def list_calls(*more: str, heap: tuple[str, ...] = _HEAP) -> tuple[str, ...]:
    """The functions that libraries take from any C library, and those that only some ask for;
    heap: what gives and takes memory.
    """
    mathematics = (*_KERNELS, *(f"{name}f" for name in _KERNELS))
    return tuple(sorted({*_MEMORY, *heap, *mathematics, *more}))

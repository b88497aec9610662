"""Processors to schedule kernels for, and what of them runs here."""

from dataclasses import replace

from compiler import targets
from compiler.capabilities import verification
from compiler.targets import Target, TargetStatus


def nearest(name: str) -> Target:
    """The target where this machine can run its code, else one whose schedules are for its vectors,
    registers and caches, but in this machine's instructions.
    """
    wanted = targets.resolve(name)
    if verification(wanted) is TargetStatus.EXECUTED:
        return wanted
    return replace(
        targets.resolve("native"),
        vector_bits=wanted.vector_bits,
        vector_registers=wanted.vector_registers,
        fma=wanted.fma,
        caches=wanted.caches,
    )


GEOMETRIES = {
    "128": (128, 16, False),
    "128 fma": (128, 32, True),
    "256": (256, 16, True),
    "512": (512, 32, True),
}
"""Bits of a vector, how many registers hold one, and whether the processor has fused products."""


def geometry(name: str) -> Target:
    """This machine's instructions, scheduled for the vectors and registers of another processor:
    LLVM splits vectors that are too wide.
    """
    bits, registers, fma = GEOMETRIES[name]
    return replace(targets.resolve("native"), vector_bits=bits, vector_registers=registers, fma=fma)

"""Processors to schedule kernels for, and what of them runs here."""

from dataclasses import replace

from compiler import targets
from compiler.host.capabilities import verification
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

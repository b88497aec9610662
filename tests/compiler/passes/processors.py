"""Processors to schedule kernels for, and what of them runs here."""

from dataclasses import replace

from compiler import targets
from compiler.host import host
from compiler.targets import Target

NATIVE = ("x86-64-v3", "x86-64-v4")
"""Processors to run code on where this machine is one."""
IMITATED = ("x86-64-v4", "aarch64")
"""Processors whose tilings every machine can run, in whatever instructions it has."""


def lacking(name: str) -> str:
    """What this machine misses to run code for the target, empty where it can."""
    return ", ".join(targets.resolve(name).missing_on(host()))


def imitation(name: str) -> Target:
    """This machine's instructions, for schedules made for the vectors, registers and caches of the target `name`."""
    other = targets.resolve(name)
    return replace(
        targets.resolve("native"),
        vector_bits=other.vector_bits,
        vector_registers=other.vector_registers,
        fma=other.fma,
        caches=other.caches,
    )

"""The mark of a tensor program that gives the elements of its first parameter in order."""

from typing import Any

from tvm import tirx

from compiler.passes.cpu.families.family import Declined
from compiler.targets.vector_unit import VectorUnit
from compiler.tir.stages import Program

IN_ORDER = "relaxd.in_order"
"""The attribute. Fusion drops it, since a fused program does more than that."""


def marked(func: Any) -> bool:
    """Whether a function is such a program."""
    return isinstance(func, tirx.PrimFunc) and bool(func.attrs) and IN_ORDER in func.attrs


def match_copy(program: Program, unit: VectorUnit) -> Program | Declined:
    """A program with the mark."""
    if not program.attrs or IN_ORDER not in program.attrs:
        return Declined("it is not a reshape alone")
    return program

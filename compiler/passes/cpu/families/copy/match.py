"""The mark of tensor programs that copy the elements of their first parameter in order."""

from typing import Any

from tvm import tirx

from compiler.passes.cpu.families.family import Declined
from compiler.targets.vector_unit import VectorUnit
from compiler.tir.stages import Program

IN_ORDER = "relaxd.in_order"
"""The attribute. Fusion drops it, since a fused program does more than copying."""


def is_copy(func: Any) -> bool:
    """True if a function is such a program."""
    return isinstance(func, tirx.PrimFunc) and bool(func.attrs) and IN_ORDER in func.attrs


def match_copy(program: Program, unit: VectorUnit) -> Program | Declined:
    """The program, if it is marked as a copy."""
    if not program.attrs or IN_ORDER not in program.attrs:
        return Declined("it is not a reshape alone")
    return program

"""The form of a kernel family: how it recognises a tensor program, and how it writes its loops.

A family is a folder with a `family.py` that defines one `Family`; `table.py` holds their order.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from compiler.targets.vector_unit import VectorUnit
from compiler.tir.loops import Stmt
from compiler.tir.stages import Program

M = TypeVar("M")
"""What a family reads a program as, such as `Winograd` or `Contraction`."""


@dataclass(frozen=True)
class Declined:
    """A family's refusal of a program.

    reason: the first condition that the program does not meet, in plain English without a full
    stop, such as `the weights are not packed in panels`. `relaxd families` shows it to users.
    """

    reason: str


@dataclass(frozen=True)
class Family(Generic[M]):
    """One kind of kernel: its name, what it computes in one line, and its three steps.

    match: reads a program whose cheap stages are inlined, or declines it; it writes no loops.
    tile: describes the tile of a match in a few words, such as `6x16, depth 384 a pass`; empty
    where the family has none.
    emit: writes the loops of a match, the whole body of the kernel. It always succeeds: whatever a
    family cannot take, `match` declines.
    """

    name: str
    summary: str
    match: Callable[[Program, VectorUnit], M | Declined]
    tile: Callable[[M, VectorUnit], str]
    emit: Callable[[M, VectorUnit], Stmt]


def no_tile(match: object, unit: VectorUnit) -> str:
    """The description of a family whose kernels have no fixed tile."""
    return ""

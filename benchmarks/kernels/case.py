"""One kernel at one shape: its graph, inputs, operations and bytes."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from math import prod
from typing import Any

import numpy as np

from compiler.passes.framework.kernel_notes import FOREIGN

Inputs = Mapping[str, tuple[tuple[Any, ...], str]]

WEIGHT_BYTES = 16 << 20
"""Bytes of weights over which a matmul is called, layer by layer: more than L2 keeps, as in a
model, where every layer has its own.
"""
STREAMED_BYTES = 96 << 20
"""The same where weights have to come from memory: more than most last caches keep."""


RECURRENT = "recurrent"
"""The family of kernels that no family of the table takes."""


class Arithmetic(StrEnum):
    """The dtype that a kernel multiplies: each has a peak of its own."""

    FLOAT32 = "float32"
    BFLOAT16 = "bfloat16"
    INT8 = "int8"


@dataclass(frozen=True)
class Case:
    """One kernel at one shape.

    graph: of `inputs`, whose named axes have these `extents`; copies: how many times a call runs
    the kernel. operations: multiplications and additions of one run by its definition; computed: by
    the kernel's algorithm, where that differs. bytes: that one run has to read and write; again:
    those among them that it has read before; shared: those that all copies read.

    arithmetic: the dtype that is multiplied; is_bfloat16: True if the compiler rounds the operands
    of the matmul whose variable is called MATMUL to bfloat16.
    """

    family: str
    shape: str
    graph: Callable[..., Any]
    inputs: Inputs
    extents: Mapping[str, int]
    operations: int
    bytes: int
    copies: int = 1
    computed: int | None = None
    again: int = 0
    shared: int = 0
    arithmetic: Arithmetic = Arithmetic.FLOAT32
    is_bfloat16: bool = False

    @property
    def group(self) -> str:
        """The family, and its arithmetic unless that is float32."""
        plain = self.arithmetic is Arithmetic.FLOAT32 or self.arithmetic == self.family
        return self.family if plain else f"{self.family}, {self.arithmetic}"

    @property
    def taken_by(self) -> str:
        """The family in a kernel's note: loops of recurrent layers come from the importer."""
        return FOREIGN if self.family == RECURRENT else self.family

    @property
    def executed(self) -> int:
        """Operations of the kernel's algorithm."""
        return self.operations if self.computed is None else self.computed

    @property
    def touched(self) -> int:
        """Bytes that a call reads and writes, all copies together: the cache that the next call
        needs to find them there.
        """
        return self.copies * (self.bytes - self.again - self.shared) + self.shared

    def arrays(self) -> list[np.ndarray]:
        """Inputs: floats standard normal, integers of a byte."""
        random = np.random.default_rng(0)
        result = []
        for shape, dtype in self.inputs.values():
            size = [self.extents.get(axis, axis) for axis in shape]
            is_integer = not dtype.startswith("float")
            values = random.integers(0, 256, size) if is_integer else random.standard_normal(size)
            result.append(values.astype(dtype))
        return result


def copies_for(size: int, total: int = WEIGHT_BYTES, most: int = 8) -> int:
    """The number of matrices of `size` bytes in `total`, at least one and at most `most`."""
    return max(min(total // size, most), 1)


def floats(*shapes: tuple[int, ...]) -> int:
    """Bytes of float32 tensors."""
    return 4 * sum(map(prod, shapes))

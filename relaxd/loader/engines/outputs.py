"""Memory of large outputs, which later calls write again once nobody holds an array in it: a system
takes a millisecond to give a process four MB.
"""

from math import prod
from typing import NamedTuple

import numpy as np

from relaxd.loader.engines.failures import Failed
from relaxd.loader.machine.addresses import LINE, address

_SMALLEST = 1 << 16
"""Bytes of an output whose memory is kept; the C library keeps that of smaller ones."""

_Spares = list[np.ndarray | None]


class Wanted(NamedTuple):
    """One of a model's outputs, by its position, as a call gives it; `size` in bytes."""

    output: int
    shape: tuple[int, ...]
    dtype: np.dtype
    size: int

    @classmethod
    def of(cls, output: int, shape: tuple[int, ...], dtype: np.dtype) -> "Wanted":
        """Make it from a shape and a dtype."""
        return cls(output, shape, dtype, prod(shape) * dtype.itemsize)


def reserve(size: int) -> np.ndarray:
    """So many bytes; raises Failed where there is no memory for them."""
    try:
        return np.empty(size, np.uint8)
    except MemoryError as error:
        raise Failed(f"{{{{out of memory: cannot allocate {size} bytes}}}}") from error


class Outputs:
    """Where one context puts its outputs; it keeps memory for one array of each that nobody holds
    any more.
    """

    def __init__(self, count: int) -> None:
        self._spares: _Spares = [None] * count

    def empty(self, wanted: Wanted) -> np.ndarray:
        """An array that no other one overlaps, at an address that is a multiple of 64 where it is
        large.
        """
        output, shape, dtype, size = wanted
        memory, self._spares[output] = self._spares[output], None
        if size < _SMALLEST:
            return np.empty(shape, dtype)
        if memory is None or not size + LINE <= memory.size <= 2 * size:
            memory = reserve(size + LINE)
        piece = _Piece(memory, size, self._spares, output)
        return np.asarray(piece).view(dtype).reshape(shape)


class _Piece:
    """The owner of a piece of memory, which returns to `spares` after the last array over it."""

    def __init__(self, memory: np.ndarray, size: int, spares: _Spares, output: int) -> None:
        self._memory, self._spares, self._output = memory, spares, output
        start = -(-address(memory) // LINE) * LINE
        self.__array_interface__ = {
            "version": 3,
            "shape": (size,),
            "typestr": "|u1",
            "data": (start, False),
        }

    def __del__(self) -> None:
        self._spares[self._output] = self._memory

"""Where arrays begin in memory."""

import ctypes
from collections.abc import Sequence

import numpy as np

LINE = 64
"""Bytes of a cache line, and of the longest vector."""

_Nothing = ctypes.c_char * 0
_borrowed, _begin = _Nothing.from_buffer, ctypes.addressof
_Refused = (TypeError, ValueError, BufferError)


def address(array: np.ndarray) -> int:
    """Where a dense array begins; ctypes finds it in a fifth of the time that numpy needs."""
    try:
        return _begin(_borrowed(array))  # type: ignore[arg-type]
    except _Refused:  # read only, or of a type of ml_dtypes
        address: int = array.__array_interface__["data"][0]
        return address


def addresses(arrays: Sequence[object]) -> list[int] | None:
    """Where arrays begin that C can use as they are: numpy's, dense, writable and in the machine's
    byte order. None where one of them is of another kind.
    """
    pointers = []
    for one in arrays:
        if type(one) is not np.ndarray or not one.dtype.isnative:
            return None
        try:
            pointers.append(_begin(_borrowed(one)))  # type: ignore[arg-type]
        except _Refused:
            return None
    return pointers

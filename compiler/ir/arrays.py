"""Arrays and Relax constants in one memory: a weight is copied as slowly as it is worked on."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import tvm
from tvm import relax

_ALIGNMENT = 64
"""Of tensors of TVM's, in bytes."""
_KINDS = "biuf"
"""The dtypes of numpy's own, which others are not."""


def elements_of(tensor: tvm.runtime.Tensor) -> np.ndarray:
    """The tensor's elements, not to be written: in its own memory where numpy itself has the dtype,
    which it has not of bfloat16 and the like.
    """
    try:
        return np.from_dlpack(tensor)
    except (BufferError, RuntimeError):
        return np.asarray(tensor.numpy())


def values_of(constant: tvm.ir.GenericConst) -> np.ndarray:
    """`elements_of` a constant."""
    return elements_of(constant.value)


def allocate(shape: Sequence[int], dtype: Any = np.float32) -> np.ndarray:
    """An array without values, in memory that `as_constant` need not copy."""
    return np.from_dlpack(tvm.runtime.empty(shape, np.dtype(dtype).name))


def as_constant(array: np.ndarray) -> tvm.ir.GenericConst:
    """A constant of the array's elements and dtype: in the array's memory, which nobody writes any
    more, where that is contiguous and aligned, else in a copy.
    """
    if array.dtype.kind not in _KINDS or not array.size:
        return relax.const(tvm.runtime.tensor(array))
    flags = array.flags
    if not (flags.c_contiguous and flags.writeable and array.ctypes.data % _ALIGNMENT == 0):
        copy = allocate(array.shape, array.dtype)
        copy[...] = array
        array = copy
    return relax.const(tvm.runtime.from_dlpack(array))

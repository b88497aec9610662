"""Arrays of the element types that numpy lacks (`relaxd.contract.dims.tensors.STORAGE`): from
whatever a caller has to the bytes that a library takes, and back.
"""

from typing import Any

import numpy as np

from relaxd.contract.dims.tensors import STORAGE, TensorSpec
from relaxd.errors import InputError

_BITS = {"float4_e2m1fn": 4, "int4": 4, "uint4": 4, "int2": 2, "uint2": 2}
"""Of the types that leave some of a byte's bits free."""


def is_held(array: np.ndarray, dtype: str) -> bool:
    """True if the array holds elements of a narrow type: as ml_dtypes' own, as their bytes, or as
    the raw bytes that numpy reads from a file for ml_dtypes' arrays.
    """
    return array.dtype.name in (dtype, STORAGE[dtype]) or array.dtype == np.dtype("V1")


def bytes_of(array: np.ndarray, spec: TensorSpec) -> np.ndarray:
    """The library's bytes for an input that `is_held`; raises InputError where one of the caller's
    own bytes is none of the type.
    """
    storage = np.dtype(STORAGE[spec.dtype])
    if array.dtype == storage:
        _check(array, spec)
        return array
    bits = _BITS.get(spec.dtype, 8)
    # numpy cannot view an array without a contiguous last axis as another type, even of one size.
    raw = np.ascontiguousarray(array).reshape(array.shape).view(np.uint8)
    if bits == 8:
        return raw
    low = (raw & np.uint8((1 << bits) - 1)).astype(storage)
    if storage.kind == "u":
        return np.asarray(low)
    return np.where(low < 1 << bits - 1, low, low - np.int8(1 << bits))


def _check(array: np.ndarray, spec: TensorSpec) -> None:
    bits = _BITS.get(spec.dtype)
    if bits is None or not array.size:
        return
    half = 1 << bits - 1
    low, high = (-half, half - 1) if array.dtype.kind == "i" else (0, 2 * half - 1)
    least, most = int(array.min()), int(array.max())
    if least < low or most > high:
        raise InputError(
            f"input {spec.name!r}: values of {spec.dtype} must be {low} to {high}, got {least} to "
            f"{most}",
            hint="give one element a byte, or an array of ml_dtypes",
            input=spec.name,
            dtype=str(array.dtype),
            expected=spec.dtype,
        )


def view_as(array: np.ndarray, dtype: str) -> np.ndarray:
    """A library's bytes as ml_dtypes' array of the type; the bytes themselves where ml_dtypes is
    not installed or does not know the type yet.
    """
    try:
        own = dtype_of(dtype)
    except (ImportError, AttributeError):
        return array
    # An int4 of ml_dtypes is made from the number, a float of it from the bits.
    return array.view(own) if "float" in dtype else array.astype(own)


def dtype_of(name: str) -> Any:
    """The numpy dtype of any type's name; raises ImportError where it takes ml_dtypes, which is not
    installed.
    """
    if name in STORAGE or name == "bfloat16":
        import ml_dtypes

        return np.dtype(getattr(ml_dtypes, name))
    return np.dtype(name)

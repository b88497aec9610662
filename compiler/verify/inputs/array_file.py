"""Named arrays in a file between two steps of a build, of every element type of the contract.

The file is the length of its index, 8 bytes, the index as JSON, and the arrays' bytes one after the
other. Verification reads single arrays of a decoder's sixty outputs again and again: NumPy's
archives are parsed and checksummed each time.
"""

import json
import math
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from relaxd.contract.dims.tensors import STORAGE
from relaxd.loader.tensors.element_types import dtype_of

_LENGTH = 8


def write(path: Path, arrays: Mapping[str, np.ndarray[Any, Any]]) -> None:
    """Write the arrays to a file."""
    index = [[name, array.dtype.name, array.shape] for name, array in arrays.items()]
    header = json.dumps(index).encode()
    with path.open("wb") as file:
        file.write(len(header).to_bytes(_LENGTH, "little") + header)
        for array in arrays.values():
            storable(np.ascontiguousarray(array)).tofile(file)


def read(path: Path, only: Collection[str] | None = None) -> dict[str, np.ndarray[Any, Any]]:
    """The arrays that `write` wrote, in its order; only: the names to read, None for all. Raises
    ValueError for a file that is cut off.
    """
    arrays: dict[str, np.ndarray[Any, Any]] = {}
    with path.open("rb") as file:
        index = json.loads(file.read(int.from_bytes(file.read(_LENGTH), "little")))
        for name, dtype_name, shape in index:
            dtype = dtype_of(dtype_name)
            size = math.prod(shape) * dtype.itemsize
            if only is None or name in only:
                arrays[name] = np.fromfile(file, np.uint8, size).view(dtype).reshape(shape)
            else:
                file.seek(size, 1)
    return arrays


def view_typed(array: np.ndarray[Any, Any], dtype: str) -> np.ndarray[Any, Any]:
    """View the array's bits as the dtype of that name: NumPy's files store those of ml_dtypes as
    integers.
    """
    return array if array.dtype.name == dtype else array.view(dtype_of(dtype))


def storable(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The array in a dtype that NumPy's files hold; inverse of `view_typed`."""
    name = array.dtype.name
    if name not in STORAGE and name != "bfloat16":
        return array
    return np.ascontiguousarray(array).reshape(array.shape).view(f"uint{array.itemsize * 8}")


def itemsize(dtype: str) -> int:
    """Bytes of one element."""
    return int(dtype_of(dtype).itemsize)

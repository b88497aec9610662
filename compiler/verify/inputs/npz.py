"""Named arrays in a file between two steps of a build, of every element type of the contract."""

import json
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from relaxd.contract.dims.tensors import STORAGE
from relaxd.loader.tensors.element_types import dtype_of

_INDEX = "index"


def write(path: Path, arrays: Mapping[str, np.ndarray[Any, Any]]) -> None:
    """Write the arrays to a file of NumPy's format."""
    index = [[name, array.dtype.name] for name, array in arrays.items()]
    stored: dict[str, Any] = {f"a{i}": storable(array) for i, array in enumerate(arrays.values())}
    stored[_INDEX] = np.array(json.dumps(index))
    with path.open("wb") as file:
        np.savez(file, **stored)


def read(path: Path, only: Collection[str] | None = None) -> dict[str, np.ndarray[Any, Any]]:
    """The arrays that `write` wrote, in its order; only: the names to read, None for all."""
    with np.load(path, allow_pickle=False) as archive:
        index = json.loads(str(archive[_INDEX]))
        return {
            name: view_typed(archive[f"a{i}"], dtype)
            for i, (name, dtype) in enumerate(index)
            if only is None or name in only
        }


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

"""Named arrays in a file between two steps of a build, bfloat16 among them."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

_BFLOAT16 = "bfloat16"
_INDEX = "index"


def write(path: Path, arrays: Mapping[str, np.ndarray[Any, Any]]) -> None:
    """Write the arrays to a file of NumPy's format."""
    index = [[name, array.dtype.name] for name, array in arrays.items()]
    stored: dict[str, Any] = {f"a{i}": storable(array) for i, array in enumerate(arrays.values())}
    stored[_INDEX] = np.array(json.dumps(index))
    with path.open("wb") as file:
        np.savez(file, **stored)


def read(path: Path) -> dict[str, np.ndarray[Any, Any]]:
    """What `write` wrote, in its order."""
    with np.load(path, allow_pickle=False) as archive:
        index = json.loads(str(archive[_INDEX]))
        return {name: typed(archive[f"a{i}"], dtype) for i, (name, dtype) in enumerate(index)}


def typed(array: np.ndarray[Any, Any], dtype: str) -> np.ndarray[Any, Any]:
    """The array, its bits read as the dtype of that name: NumPy's files hold bfloat16 as uint16."""
    if dtype != _BFLOAT16:
        return array
    import ml_dtypes

    return array.view(ml_dtypes.bfloat16)


def storable(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The array in a dtype that NumPy's files hold; inverse of `typed`."""
    return array.view(np.uint16) if array.dtype.name == _BFLOAT16 else array


def storage(dtype: str) -> str:
    """The numpy dtype that holds elements of `dtype` in a file."""
    return "uint16" if dtype == "bfloat16" else dtype


def itemsize(dtype: str) -> int:
    """Bytes of one element."""
    return np.dtype(storage(dtype)).itemsize

"""Files of tensors, as the driver reads and writes them."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

_CODES = {"i": 0, "u": 1, "f": 2, "b": 6}
"""DLPack's type codes by NumPy's kind; bfloat16 has its own."""
_BFLOAT = 4
_KINDS = {code: kind for kind, code in _CODES.items()}


def write(path: Path, arrays: Iterable[Array]) -> None:
    """A count, then each array: code, bits, rank, extents (int64 each) and its values in
    C order.
    """
    listed = list(arrays)
    with path.open("wb") as file:
        file.write(np.int64(len(listed)).tobytes())
        for array in listed:
            code = _BFLOAT if array.dtype.name == "bfloat16" else _CODES[array.dtype.kind]
            header = [code, array.dtype.itemsize * 8, array.ndim, *array.shape]
            file.write(np.asarray(header, np.int64).tobytes())
            file.write(np.ascontiguousarray(array).tobytes())


def read(path: Path) -> list[Array]:
    """The arrays of a file."""
    data = path.read_bytes()
    count, offset, arrays = int(np.frombuffer(data, np.int64, 1)[0]), 8, []
    for _ in range(count):
        code, bits, rank = (int(number) for number in np.frombuffer(data, np.int64, 3, offset))
        shape = [int(extent) for extent in np.frombuffer(data, np.int64, rank, offset + 24)]
        offset += 24 + 8 * rank
        size = int(np.prod(shape, dtype=np.int64))
        arrays.append(np.frombuffer(data, _dtype(code, bits), size, offset).reshape(shape))
        offset += size * bits // 8
    return arrays


def _dtype(code: int, bits: int) -> Any:
    if code == _BFLOAT:
        import ml_dtypes

        return np.dtype(ml_dtypes.bfloat16)
    return np.dtype(bool) if _KINDS[code] == "b" else np.dtype(f"{_KINDS[code]}{bits // 8}")


def from_bytes(content: bytes, dtype: str, shape: tuple[int, ...], offset: int) -> Array:
    """An array that lies within `content`."""
    size = int(np.prod(shape, dtype=np.int64))
    kind = _dtype(_BFLOAT, 16) if dtype == "bfloat16" else np.dtype(dtype)
    return np.frombuffer(content, kind, size, offset).reshape(shape)

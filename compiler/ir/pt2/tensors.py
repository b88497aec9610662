"""Weights and constants of a `.pt2` file as arrays over the mapped file, their sizes and strides
checked against the bytes that there are.
"""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from compiler.errors import LoadError
from compiler.ir.pt2.archive import refuse_malformed

DTYPES: dict[int, str] = {
    1: "uint8", 2: "int8", 3: "int16", 4: "int32", 5: "int64", 6: "float16", 7: "float32",
    8: "float64", 12: "bool", 13: "bfloat16", 28: "uint16", 34: "uint32", 35: "uint64",
}  # fmt: skip
"""Element types by their number in the file; complex ones and floats of 8 bits are left out."""
_STRIDED = 7
_EXPANDED = 1 << 28
"""The largest tensor in bytes whose elements lie over one another, as an expanded one's do."""


def dtype_of(code: Any, name: str) -> str:
    """The element type of a tensor; raises LoadError naming the tensor for one not carried."""
    if type(code) is not int or code not in DTYPES:
        raise LoadError(
            f"the tensor {name!r} is of the element type {code!r} of torch's schema, which is not "
            "supported",
            reason="unsupported_dtype",
            field="model",
            node=name,
            hint="supported are bool, integers, and floats of 16 bits and more",
        )
    return DTYPES[code]


def tensor_of(data: np.ndarray[Any, Any], meta: dict[str, Any], name: str) -> np.ndarray[Any, Any]:
    """A tensor over the bytes of its storage; raises LoadError where it reaches beyond them."""
    dtype = dtype_of(meta.get("dtype"), name)
    if meta.get("layout") != _STRIDED:
        refuse_malformed(f"the tensor {name!r} is not strided")
    sizes, strides = _integers(meta.get("sizes"), name), _integers(meta.get("strides"), name)
    (offset,) = _integers([meta.get("storage_offset")], name)
    if len(sizes) != len(strides):
        refuse_malformed(f"the tensor {name!r} has {len(sizes)} sizes and {len(strides)} strides")
    element = np.dtype(ml_dtypes.bfloat16) if dtype == "bfloat16" else np.dtype(dtype)
    if 0 in sizes:
        return np.zeros(sizes, element)
    last = offset + sum((size - 1) * stride for size, stride in zip(sizes, strides, strict=True))
    if (last + 1) * element.itemsize > data.nbytes:
        refuse_malformed(f"the tensor {name!r} reaches beyond its storage of {data.nbytes} bytes")
    count = 1
    for size in sizes:
        count *= size
    if count * element.itemsize > max(data.nbytes, _EXPANDED):
        refuse_malformed(f"the tensor {name!r} has {count} elements in {data.nbytes} bytes")
    start = offset * element.itemsize
    flat = data[start : start + (last + 1 - offset) * element.itemsize]
    if flat.ctypes.data % element.itemsize:
        flat = flat.copy()
    return np.lib.stride_tricks.as_strided(
        flat.view(element), sizes, [stride * element.itemsize for stride in strides]
    )


def _integers(items: Any, name: str) -> list[int]:
    """Sizes that are known: weights have no symbols in theirs."""
    numbers = [item.get("as_int") if isinstance(item, dict) else None for item in items or ()]
    if not all(type(number) is int and 0 <= number < 1 << 48 for number in numbers):
        refuse_malformed(f"the sizes of the tensor {name!r} are no numbers")
    return numbers  # type: ignore[return-value]

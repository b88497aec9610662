"""Weights and constants of a `.pt2` file as arrays over the mapped file, their sizes and strides
checked against the bytes that there are. numpy is imported where an array is made.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from compiler.errors import LoadError
from compiler.ir.pt2.archive import refuse_malformed

if TYPE_CHECKING:
    import numpy as np

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


@dataclass(frozen=True)
class Form:
    """How a tensor lies in the bytes of its storage: sizes, strides and offset in elements."""

    dtype: str
    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int

    @property
    def itemsize(self) -> int:
        """The bytes of an element."""
        bits = "".join(filter(str.isdigit, self.dtype))
        return int(bits or 8) // 8

    @property
    def end(self) -> int:
        """Elements of the storage up to the tensor's last one."""
        pairs = zip(self.sizes, self.strides, strict=True)
        return self.offset + sum((size - 1) * stride for size, stride in pairs) + 1

    def over(self, data: memoryview) -> np.ndarray[Any, Any]:
        """The tensor over those bytes."""
        import ml_dtypes
        import numpy as np

        element = np.dtype(ml_dtypes.bfloat16 if self.dtype == "bfloat16" else self.dtype)
        if 0 in self.sizes:
            return np.zeros(self.sizes, element)
        size = element.itemsize
        flat = np.frombuffer(data[self.offset * size : self.end * size], np.uint8)
        if flat.ctypes.data % size:
            flat = flat.copy()
        return np.lib.stride_tricks.as_strided(
            flat.view(element), self.sizes, [stride * size for stride in self.strides]
        )


def form_of(data: memoryview, meta: dict[str, Any], name: str) -> Form:
    """How a tensor lies in its storage; raises LoadError where it reaches beyond it."""
    dtype = dtype_of(meta.get("dtype"), name)
    if meta.get("layout") != _STRIDED:
        refuse_malformed(f"the tensor {name!r} is not strided")
    sizes, strides = _integers(meta.get("sizes"), name), _integers(meta.get("strides"), name)
    (offset,) = _integers([meta.get("storage_offset")], name)
    if len(sizes) != len(strides):
        refuse_malformed(f"the tensor {name!r} has {len(sizes)} sizes and {len(strides)} strides")
    form = Form(dtype, tuple(sizes), tuple(strides), offset)
    if 0 in sizes:
        return form
    if form.end * form.itemsize > data.nbytes:
        refuse_malformed(f"the tensor {name!r} reaches beyond its storage of {data.nbytes} bytes")
    count = math.prod(sizes)
    if count * form.itemsize > max(data.nbytes, _EXPANDED):
        refuse_malformed(f"the tensor {name!r} has {count} elements in {data.nbytes} bytes")
    return form


def _integers(items: Any, name: str) -> list[int]:
    """Sizes that are known: weights have no symbols in theirs."""
    numbers = [item.get("as_int") if isinstance(item, dict) else None for item in items or ()]
    if not all(type(number) is int and 0 <= number < 1 << 48 for number in numbers):
        refuse_malformed(f"the sizes of the tensor {name!r} are no numbers")
    return numbers  # type: ignore[return-value]

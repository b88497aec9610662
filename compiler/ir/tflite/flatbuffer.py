"""Reads FlatBuffers that nobody has vouched for: every offset, length and index is checked against
the file before it is followed. https://flatbuffers.dev/internals
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np

from compiler.errors import LoadError

MOST_ENTRIES = 1 << 17
"""Tables in one vector; files of real models have some thousands."""
_LONGEST_TEXT = 1 << 12
_FORMATS = {
    "int8": "<b", "uint8": "<B", "bool": "<?", "int16": "<h", "uint16": "<H", "int32": "<i",
    "uint32": "<I", "int64": "<q", "uint64": "<Q", "float32": "<f", "float64": "<d",
}  # fmt: skip


def refuse_malformed(why: str) -> NoReturn:
    """Raise LoadError for a file that breaks its format."""
    raise LoadError(
        f"the TFLite file is damaged: {why}",
        reason="malformed",
        field="model",
        hint="fetch or convert it again",
    )


@dataclass(frozen=True)
class Table:
    """A table at a position of the file; fields are known by their number in the schema."""

    data: memoryview
    position: int

    @classmethod
    def root(cls, data: memoryview) -> "Table":
        """The file's outermost table."""
        return cls(data, read_number(data, 0, "uint32"))

    def number(self, field: int, dtype: str, default: Any = 0) -> Any:
        """A scalar, the schema's default where the file leaves it out."""
        where = self._locate(field)
        return default if where is None else read_number(self.data, where, dtype)

    def text(self, field: int) -> str:
        """A string, empty where it is left out; cut where it is longer than any name."""
        vector = self._vector(field, 1)
        if vector is None:
            return ""
        start, count = vector
        return str(self.data[start : start + min(count, _LONGEST_TEXT)], "utf-8", "replace")

    def array(self, field: int, dtype: str) -> np.ndarray[Any, Any]:
        """A vector of scalars over the file's own bytes, empty where it is left out."""
        kind = np.dtype(dtype).newbyteorder("<")
        vector = self._vector(field, kind.itemsize)
        if vector is None:
            return np.empty(0, dtype)
        start, count = vector
        return np.frombuffer(self.data, kind, count, start).astype(dtype, copy=False)

    def has(self, field: int) -> bool:
        """True if the file gives the field."""
        return self._locate(field) is not None

    def table(self, field: int) -> "Table | None":
        """A table that the field points to."""
        where = self._locate(field)
        return None if where is None else self._follow(where)

    def tables(self, field: int) -> Iterator["Table"]:
        """The tables of a vector."""
        vector = self._vector(field, 4)
        if vector is None:
            return
        start, count = vector
        if count > MOST_ENTRIES:
            refuse_malformed(f"a vector of {count} tables, the most are {MOST_ENTRIES}")
        for index in range(count):
            yield self._follow(start + 4 * index)

    def _follow(self, where: int) -> "Table":
        return Table(self.data, where + read_number(self.data, where, "uint32"))

    def _locate(self, field: int) -> int | None:
        """Where the field's value lies, None where it is left out."""
        layout = self.position - read_number(self.data, self.position, "int32")
        size = read_number(self.data, layout, "uint16")
        entry = 4 + 2 * field
        if entry + 2 > size:
            return None
        offset = read_number(self.data, layout + entry, "uint16")
        return self.position + offset if offset else None

    def _vector(self, field: int, size: int) -> tuple[int, int] | None:
        """Where a vector's first element of so many bytes lies, and how many there are."""
        where = self._locate(field)
        if where is None:
            return None
        start = where + read_number(self.data, where, "uint32")
        count = read_number(self.data, start, "uint32")
        if start + 4 + count * size > len(self.data):
            refuse_malformed(f"a vector of {count} elements at byte {start} goes past its end")
        return start + 4, count


def read_number(data: memoryview, position: int, dtype: str) -> Any:
    """The scalar at a position; raises LoadError beyond the file."""
    form = _FORMATS[dtype]
    if not 0 <= position <= len(data) - struct.calcsize(form):
        refuse_malformed(f"it has {len(data)} bytes, and byte {position} is referred to")
    return struct.unpack_from(form, data, position)[0]

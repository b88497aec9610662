"""Reads a GGUF file that nobody has vouched for: its metadata, and where its tensors lie."""

import math
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from relaxd.contract.weight_files.errors import WeightFileError

MAGIC = b"GGUF"
_VERSIONS = (2, 3)
_MOST = 1 << 20
"""Tensors or entries of the metadata."""
_NUMBERS = {
    0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d",
}  # fmt: skip
_TEXT, _LIST = 8, 9


@dataclass(frozen=True)
class Stored:
    """A tensor as the file has it: the format of its elements, its shape with the contiguous axis
    last, and the bytes from its beginning to the end of the file.
    """

    kind: int
    shape: tuple[int, ...]
    data: np.ndarray[Any, Any]


@dataclass(frozen=True)
class Gguf:
    """A whole file."""

    metadata: Mapping[str, Any]
    tensors: Mapping[str, Stored]


def is_gguf(path: Path) -> bool:
    """True for a file that begins as a GGUF file does."""
    try:
        with path.open("rb") as file:
            return file.read(len(MAGIC)) == MAGIC
    except OSError:
        return False


def read_gguf(path: Path) -> Gguf:
    """The file's contents, tensors mapped into memory; raises WeightFileError."""
    reader = _Reader(np.memmap(path, np.uint8, mode="r"))
    try:
        return _read(reader)
    except (struct.error, UnicodeDecodeError, IndexError) as error:
        raise _malformed("it ends early, or a text in it is none") from error


def _read(reader: "_Reader") -> Gguf:
    reader.take(len(MAGIC))
    version = reader.number("I")
    if version not in _VERSIONS:
        raise WeightFileError(
            f"GGUF files of version {version} are not supported",
            reason="gguf_version",
            hint="convert it with a newer llama.cpp",
        )
    tensors, entries = reader.number("Q"), reader.number("Q")
    if max(tensors, entries) > _MOST:
        raise _malformed(f"it has more than {_MOST} tensors or entries")
    metadata = {reader.text(): reader.value(reader.number("I")) for _ in range(entries)}
    infos = [_tensor_info(reader) for _ in range(tensors)]
    alignment = metadata.get("general.alignment", 32)
    if type(alignment) is not int or alignment < 1:
        raise _malformed("its alignment is no number of bytes")
    start = -(-reader.at // alignment) * alignment
    stored = {}
    for name, kind, shape, offset in infos:
        if start + offset > len(reader.data):
            raise _malformed(f"the tensor {name!r} extends beyond the end of the file")
        stored[name] = Stored(kind, shape, reader.data[start + offset :])
    return Gguf(metadata, stored)


def _tensor_info(reader: "_Reader") -> tuple[str, int, tuple[int, ...], int]:
    name, rank = reader.text(), reader.number("I")
    if rank > 4:
        raise _malformed(f"the tensor {name!r} has {rank} axes")
    shape = tuple(reader.number("Q") for _ in range(rank))[::-1]
    if math.prod(shape) > 1 << 40:
        raise _malformed(f"the tensor {name!r} is larger than any file")
    return name, reader.number("I"), shape, reader.number("Q")


class _Reader:
    """Little-endian values one after the other."""

    def __init__(self, data: np.ndarray[Any, Any]) -> None:
        self.data, self.at = data, 0

    def take(self, size: int) -> bytes:
        if size > len(self.data) - self.at:
            raise IndexError(size)
        content = self.data[self.at : self.at + size].tobytes()
        self.at += size
        return content

    def number(self, form: str) -> Any:
        return struct.unpack(f"<{form}", self.take(struct.calcsize(f"<{form}")))[0]

    def text(self) -> str:
        return self.take(self.number("Q")).decode()

    def value(self, kind: int) -> Any:
        """A number, a text, or a list of either."""
        if kind == _LIST:
            kind, count = self.number("I"), self.number("Q")
            if kind == _LIST:
                raise _malformed("its metadata has a list of lists")
            # Each takes a byte at least.
            if count > len(self.data) - self.at:
                raise IndexError(count)
            return [self.value(kind) for _ in range(count)]
        if kind == _TEXT:
            return self.text()
        if kind not in _NUMBERS:
            raise _malformed(f"its metadata has a value of the unknown kind {kind}")
        return self.number(_NUMBERS[kind])


def _malformed(why: str) -> WeightFileError:
    return WeightFileError(
        f"the GGUF file is malformed: {why}", reason="gguf", hint="fetch it again"
    )

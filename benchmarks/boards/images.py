"""Sizes in flash of a 32-bit ELF object or program."""

import struct
from collections.abc import Iterator
from pathlib import Path

_ALLOCATED, _NOTHING = 2, 8
_MAGIC = b"\x7fELF"


def sections(content: bytes) -> Iterator[tuple[int, int, int]]:
    """Type, flags and size of each section."""
    (table,) = struct.unpack_from("<I", content, 0x20)
    size, count = struct.unpack_from("<HH", content, 0x2E)
    for index in range(table, table + size * count, size):
        kind, flags = struct.unpack_from("<II", content, index + 4)
        yield kind, flags, struct.unpack_from("<I", content, index + 20)[0]


def flash(content: bytes) -> int:
    """Bytes of code, constants and tables: of every section that is loaded and not merely zero."""
    return sum(
        size for kind, flags, size in sections(content) if flags & _ALLOCATED and kind != _NOTHING
    )


def member(archive: Path) -> bytes:
    """The object of an archive that holds one."""
    content = archive.read_bytes()
    return content[content.index(_MAGIC) :]

"""Leaves sections out of what an ELF object is linked into."""

import struct
from dataclasses import dataclass

_EXCLUDE = 0x80000000


@dataclass(frozen=True)
class _Class:
    """How one of the two classes of objects writes its headers: where the table of sections begins,
    where its entries' size, count and names stand, and a section's flags, offset and size.
    """

    number: str
    table: int
    counts: int
    flags: int
    offset: int


_CLASSES = {1: _Class("I", 0x20, 0x2E, 8, 16), 2: _Class("Q", 0x28, 0x3A, 8, 24)}


def without(content: bytes, name: bytes) -> bytes:
    """The object with the section marked as one that a linker leaves out; other formats as they
    are.

    Kernels throw nothing, and TVM does not say so to LLVM, which writes tables for unwinding them.
    """
    if content[:4] != b"\x7fELF" or content[5] != 1:
        return content
    form, edited = _CLASSES[content[4]], bytearray(content)
    (table,) = struct.unpack_from(f"<{form.number}", content, form.table)
    size, count, names = struct.unpack_from("<HHH", content, form.counts)
    (start,) = struct.unpack_from(f"<{form.number}", content, table + names * size + form.offset)
    for section in range(table, table + count * size, size):
        position = start + struct.unpack_from("<I", content, section)[0]
        if content[position : position + len(name) + 1] == name + b"\0":
            (flags,) = struct.unpack_from(f"<{form.number}", content, section + form.flags)
            struct.pack_into(f"<{form.number}", edited, section + form.flags, flags | _EXCLUDE)
    return bytes(edited)

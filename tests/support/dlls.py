"""The imports and exports of a DLL, read from its tables."""

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_TABLES = 4 + 20 + 112
"""From the mark of a PE file to the table of its tables, of which exports and imports come first,
in a file for 64 bits.
"""


@dataclass(frozen=True)
class Dll:
    """A DLL of 64 bits."""

    code: bytes

    @classmethod
    def read(cls, path: Path) -> "Dll":
        return cls(path.read_bytes())

    @property
    def imports(self) -> dict[str, set[str]]:
        """Names of functions, by the DLL that they come from."""
        result: dict[str, set[str]] = {}
        descriptor = self._table(1)
        while descriptor and (name := self._word(descriptor + 12)):
            result[self._text(name)] = set(self._names(self._word(descriptor)))
            descriptor += 20
        return result

    @property
    def exports(self) -> set[str]:
        """Names of functions."""
        table = self._table(0)
        if not table:
            return set()
        count, names = self._word(table + 24), self._word(table + 32)
        return {self._text(self._word(names + 4 * position)) for position in range(count)}

    @property
    def entry(self) -> int:
        """The address of what the system calls when it loads the DLL; 0 for nothing."""
        return int(struct.unpack_from("<I", self.code, self._mark + 4 + 20 + 16)[0])

    @property
    def _mark(self) -> int:
        return int(struct.unpack_from("<I", self.code, 60)[0])

    def _table(self, number: int) -> int:
        return int(struct.unpack_from("<I", self.code, self._mark + _TABLES + 8 * number)[0])

    def _names(self, address: int) -> Iterator[str]:
        while name := self._word(address, "<Q"):
            assert not name >> 63, "imported by number"
            yield self._text(name + 2)
            address += 8

    def _word(self, address: int, layout: str = "<I") -> int:
        return int(struct.unpack_from(layout, self.code, self._copy_to(address))[0])

    def _text(self, address: int) -> str:
        position = self._copy_to(address)
        return self.code[position : self.code.index(b"\0", position)].decode()

    def _copy_to(self, address: int) -> int:
        """Where in the file lies what is loaded at the address."""
        count, optional = struct.unpack_from("<2xH12xH", self.code, self._mark + 4)
        for section in range(count):
            header = self._mark + 24 + optional + 40 * section
            size, start, _, position = struct.unpack_from("<IIII", self.code, header + 8)
            if start <= address < start + size:
                return int(position + address - start)
        raise AssertionError(f"no section has the address {address:#x}")

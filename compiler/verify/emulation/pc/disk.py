"""The disk of the emulated PC: the kernel, a table, and the files of the program that it runs.

The table is that of `guest/kernel.h`.
"""

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

_SECTOR = 512
_TABLE_SECTOR = 128
_CYLINDER = 16 * 63 * _SECTOR
_HEADING = struct.Struct("<5Q4056s")
_FILE = struct.Struct("<4056s5Q")
_WORDS_BYTES = _PATH_BYTES = 4056
_MOST_WORDS = 512
_MOST_FILES = 1024
_EXITED = 1 << 16


class Unfit(Exception):
    """The table has no room for the command or its files."""


@dataclass(frozen=True)
class Disk:
    """A disk's file, which is written once and read after the machine has run.

    files: host files that the program can read, under the same paths; outputs: those that it may
    write, and how many bytes at most.
    """

    image: Path
    files: Sequence[Path]
    outputs: Mapping[Path, int]

    def write(self, kernel: Path, command: Sequence[str], memory: int) -> None:
        """Write the disk of a machine that runs the command; raises Unfit. memory: in bytes."""
        table = _HEADING.size + _FILE.size * (len(self.files) + len(self.outputs))
        sector, entries = _TABLE_SECTOR + _sectors(table), list[bytes]()
        with self.image.open("w+b") as disk:
            disk.write(kernel.read_bytes())
            for path in self.files:
                content = path.read_bytes()
                disk.seek(sector * _SECTOR)
                disk.write(content)
                entries.append(_FILE.pack(_path(path), sector, len(content), 0, 0, 0))
                sector += _sectors(len(content))
            for path, capacity in self.outputs.items():
                entries.append(_FILE.pack(_path(path), sector, 0, capacity, 0, 0))
                sector += _sectors(capacity)
            disk.truncate(-(-sector * _SECTOR // _CYLINDER) * _CYLINDER)
            disk.seek(_TABLE_SECTOR * _SECTOR)
            disk.write(_heading(len(entries), memory, table, command))
            disk.writelines(entries)

    def read(self) -> int | None:
        """The status that the program ended with, None if it has not ended; its outputs are written
        to their paths. Nothing that the machine wrote is trusted: it can write anywhere.
        """
        with self.image.open("rb") as disk:
            disk.seek(_TABLE_SECTOR * _SECTOR)
            *_, status, _ = _HEADING.unpack(disk.read(_HEADING.size))
            disk.seek(_FILE.size * len(self.files), 1)
            entries = [_FILE.unpack(disk.read(_FILE.size)) for _ in self.outputs]
            sector = _TABLE_SECTOR + _sectors(disk.tell() - _TABLE_SECTOR * _SECTOR)
            for path in self.files:
                sector += _sectors(path.stat().st_size)
            for (path, capacity), entry in zip(self.outputs.items(), entries, strict=True):
                disk.seek(sector * _SECTOR)
                path.write_bytes(disk.read(min(entry[2], capacity)))
                sector += _sectors(capacity)
        return status & 0xFF if status & _EXITED else None


def _heading(files: int, memory: int, table: int, command: Sequence[str]) -> bytes:
    words = b"".join(word.encode() + b"\0" for word in command)
    if files > _MOST_FILES or len(command) > _MOST_WORDS or len(words) > _WORDS_BYTES:
        raise Unfit("the program has too many files or arguments for the emulated machine")
    return _HEADING.pack(files, memory, table, len(command), 0, words)


def _path(path: Path) -> bytes:
    name = str(path).encode()
    if len(name) >= _PATH_BYTES:
        raise Unfit(f"the path of {path.name} is too long for the emulated machine")
    return name


def _sectors(size: int) -> int:
    return -(-size // _SECTOR)

"""A folder's model as one tar, read without being written anywhere."""

import io
from pathlib import Path
from typing import BinaryIO

from relaxd.contract.model_folder import ending, files_of, header, padding


class FolderTar(io.RawIOBase):
    """Raises DeclarationError for a folder without a model, OSError for a file that has become
    shorter.
    """

    def __init__(self, folder: Path) -> None:
        files = files_of(folder)
        sizes = {name: path.stat().st_size for name, path in files.items()}
        self._parts: list[tuple[int, bytes | Path, int]] = []
        self._size = self._at = 0
        for name, path in files.items():
            self._add(header(name, sizes[name]))
            self._add(path, sizes[name])
            self._add(padding(sizes[name]))
        self._add(ending(sizes))
        self._open: tuple[Path, BinaryIO] | None = None

    def _add(self, part: bytes | Path, size: int | None = None) -> None:
        size = len(part) if isinstance(part, bytes) else size or 0
        if size:
            self._parts.append((self._size, part, size))
        self._size += size

    def readable(self) -> bool:
        """Yes."""
        return True

    def seekable(self) -> bool:
        """Yes."""
        return True

    def tell(self) -> int:
        """See io."""
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """See io."""
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        self._at = base + offset
        return self._at

    def readinto(self, buffer) -> int:  # type: ignore[no-untyped-def]
        """See io."""
        view = memoryview(buffer).cast("B")
        for start, part, size in self._parts:
            if start <= self._at < start + size:
                found = self._piece(part, self._at - start, min(len(view), start + size - self._at))
                view[: len(found)] = found
                self._at += len(found)
                return len(found)
        return 0

    def _piece(self, part: bytes | Path, offset: int, count: int) -> bytes:
        if isinstance(part, bytes):
            return part[offset : offset + count]
        if self._open is None or self._open[0] != part:
            self._shut()
            self._open = (part, part.open("rb"))
        self._open[1].seek(offset)
        found = self._open[1].read(count)
        if not found:
            raise OSError(f"{part} became shorter while it was read")
        return found

    def _shut(self) -> None:
        if self._open is not None:
            self._open[1].close()
            self._open = None

    def close(self) -> None:
        """See io."""
        self._shut()
        super().close()

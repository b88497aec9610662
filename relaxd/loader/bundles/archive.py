"""Reads bundles from tars, compressed or not, within bounds that the file's own size sets."""

import bz2
import gzip
import io
import lzma
import tarfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from relaxd.errors import BundleError, BundleNotFound

RATIO, FLOOR = 200, 64 << 20
"""What a tar may unpack to: so many times its size, or so many bytes."""
MAX_MEMBERS = 4096
_CHUNK = 1 << 20
_OPENERS: dict[bytes, Any] = {
    b"\x1f\x8b": gzip.open,
    b"BZh": bz2.open,
    b"\xfd7zXZ\0": lzma.open,
}
_FAULTS = (tarfile.TarError, EOFError, OSError, zlib.error, lzma.LZMAError, ValueError)


class _Bounded:
    """A stream that is read forwards, a chunk at a time, up to a number of bytes in all."""

    def __init__(self, stream: IO[bytes], budget: int) -> None:
        self._stream = stream
        self._budget = budget
        self._position = 0

    def read(self, size: int = -1) -> bytes:
        """Read as from a file; raises BundleError beyond the bounds."""
        # tarfile reads headers whole, of whatever size they claim to have.
        if not 0 <= size <= _CHUNK or self._position + size > self._budget + _CHUNK:
            raise BundleError(
                f"the tar holds more than {self._budget} bytes, or a header that is too large",
                hint="unpack it yourself, and load the folder",
            )
        data = self._stream.read(size)
        self._position += len(data)
        return data

    def seek(self, position: int, whence: int = io.SEEK_SET) -> int:
        """Forwards alone."""
        if whence != io.SEEK_SET or position < self._position:
            raise BundleError("the tar has a member of a negative size")
        while self._position < position and self.read(min(_CHUNK, position - self._position)):
            pass
        return self._position

    def tell(self) -> int:
        """Bytes read so far."""
        return self._position


def budget_of(path: Path) -> int:
    """How many bytes the tar may unpack to."""
    return max(FLOOR, RATIO * path.stat().st_size)


@contextmanager
def members(path: Path) -> Iterator[Iterator[tuple[str, int, IO[bytes]]]]:
    """Name, size and content of every plain file of a tar, in order, each to be read before the
    next; links, devices and folders are passed over. Raises BundleError.
    """
    if not path.exists():
        raise BundleNotFound(
            f"there is no bundle at {path}", hint="give the directory or tar that a build wrote"
        )
    try:
        with path.open("rb") as file:
            magic = file.read(6)
        opener = next(
            (opener for start, opener in _OPENERS.items() if magic.startswith(start)), open
        )
        with opener(path, "rb") as stream:
            bounded: Any = _Bounded(stream, budget_of(path))
            with tarfile.TarFile(fileobj=bounded, mode="r") as tar:
                yield _files(tar)
    except _FAULTS as error:
        raise BundleError(
            f"{path} is neither a bundle directory nor a readable tar: {error}",
            hint="fetch the bundle again",
        ) from error


def _files(tar: tarfile.TarFile) -> Iterator[tuple[str, int, IO[bytes]]]:
    for count, member in enumerate(tar):
        if count >= MAX_MEMBERS:
            raise BundleError(f"the tar has more than {MAX_MEMBERS} members")
        content = tar.extractfile(member) if member.isreg() and not member.issparse() else None
        if content is not None:
            yield member.name.removeprefix("./"), member.size, content

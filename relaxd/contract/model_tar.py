"""A folder's model as the one tar that identifies it, read of the folder or of any other tar, and
written nowhere.
"""

import io
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import BinaryIO

from relaxd.contract.model_folder import (
    CONFIG,
    INDEX,
    MOST_INDEX_BYTES,
    choose_files,
    ending,
    files_of,
    header,
    padding,
)
from relaxd.errors import DeclarationError

MOST_MEMBERS = 4096
_MAGIC, _MAGIC_AT = b"ustar", 257
START = _MAGIC_AT + len(_MAGIC)
"""As many bytes show whether a file is a tar."""
_IN_MEMORY = (
    tarfile.GNUTYPE_LONGNAME,
    tarfile.GNUTYPE_LONGLINK,
    tarfile.XHDTYPE,
    tarfile.XGLTYPE,
    tarfile.SOLARIS_XHDTYPE,
)
_MOST_IN_MEMORY = 1 << 16
"""Bytes of a record that tarfile reads at once."""


def is_tar(start: bytes) -> bool:
    """True if a file of these first bytes is a tar that is not packed."""
    return start[_MAGIC_AT:START] == _MAGIC


@dataclass(frozen=True)
class Piece:
    """Bytes of a file, or of one that is open."""

    source: Path | BinaryIO
    start: int
    size: int


def pieces_of_folder(folder: Path) -> dict[str, Piece]:
    """The model's own files; raises DeclarationError."""
    return {name: Piece(path, 0, path.stat().st_size) for name, path in files_of(folder).items()}


def pieces_of_tar(file: BinaryIO, source: Path | BinaryIO) -> dict[str, Piece]:
    """The model's own files in a tar that nobody has vouched for; source: where they are read later
    on. Raises DeclarationError for a tar that is malformed or leads out of itself, and for one that
    holds no model.
    """
    members = _in_folder(_members(file))
    index = None
    if INDEX in members:
        start, size = members[INDEX]
        file.seek(start)
        index = file.read(min(size, MOST_INDEX_BYTES))
    return {name: Piece(source, *members[name]) for name in choose_files(members, index)}


class _Member(tarfile.TarInfo):
    """A member whose size cannot lead backwards, to be read for ever, and whose names and lists of
    holes cannot fill the memory.
    """

    def _proc_member(self, archive: tarfile.TarFile) -> tarfile.TarInfo:
        if self.type in _IN_MEMORY and not 0 <= self.size <= _MOST_IN_MEMORY:
            raise tarfile.ReadError(f"a member's name or attributes have {self.size} bytes")
        if self.type == tarfile.GNUTYPE_SPARSE:
            raise tarfile.ReadError("it has sparse files")
        return super()._proc_member(archive)  # type: ignore[misc, no-any-return]

    def _proc_gnusparse_10(self, *_arguments: object) -> None:
        raise tarfile.ReadError("it has sparse files")

    def _block(self, count: int) -> int:
        if count < 0:
            raise tarfile.ReadError("a member has a negative size")
        return int(super()._block(count))  # type: ignore[misc]


def _members(file: BinaryIO) -> dict[PurePosixPath, tuple[int, int]]:
    """The place and size of each file."""
    members: dict[PurePosixPath, tuple[int, int]] = {}
    try:
        with tarfile.open(fileobj=file, mode="r:", tarinfo=_Member) as archive:
            for count, member in enumerate(archive):
                if count >= MOST_MEMBERS:
                    raise _refused(f"the tar has more than {MOST_MEMBERS} members")
                path = _checked(member)
                if member.isdir():
                    continue
                if path in members:
                    raise _refused(f"the tar has {str(path)!r} twice", "pack the folder again")
                members[path] = (member.offset_data, member.size)
            file.seek(archive.offset)
            end = file.read(tarfile.BLOCKSIZE)
            if len(end) < tarfile.BLOCKSIZE or any(end):
                raise tarfile.ReadError("it ends early")
    except (tarfile.TarError, ValueError, OverflowError, EOFError, RecursionError) as error:
        # A record about the next member is followed by calling tarfile's reader in itself.
        raise _refused(f"the tar is malformed: {error}", "pack the folder again") from error
    return members


def _checked(member: tarfile.TarInfo) -> PurePosixPath:
    """The member's path; raises DeclarationError for one that leads out of the folder, and for what
    is not a regular file.
    """
    path, name = PurePosixPath(member.name), member.name[:100]
    if path.is_absolute() or ".." in path.parts or "\0" in member.name:
        raise _refused(f"the tar's member {name!r} leads out of the folder")
    if not (member.isreg() or member.isdir()) or member.issparse():
        raise _refused(
            f"the tar's member {name!r} is not a regular file",
            "pack the files themselves, not links to them: tar --dereference",
        )
    return path


def _in_folder(members: Mapping[PurePosixPath, tuple[int, int]]) -> dict[str, tuple[int, int]]:
    """Those in the folder of the highest config.json, by name."""
    configs = [path for path in members if path.name == CONFIG]
    folder = min(configs, key=lambda path: len(path.parts), default=PurePosixPath("x")).parent
    return {path.name: span for path, span in members.items() if path.parent == folder}


class ModelTar(io.RawIOBase):
    """The tar of a model's own files; reading raises OSError for a file that has become shorter."""

    def __init__(self, pieces: Mapping[str, Piece]) -> None:
        self._parts: list[tuple[int, bytes | Piece, int]] = []
        self._size = self._at = 0
        for name in sorted(pieces):
            size = pieces[name].size
            for part in (header(name, size), pieces[name], padding(size)):
                self._add(part)
        self._add(ending({name: piece.size for name, piece in pieces.items()}))
        self._open: tuple[Path, BinaryIO] | None = None

    def _add(self, part: bytes | Piece) -> None:
        size = len(part) if isinstance(part, bytes) else part.size
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
                count = min(len(view), start + size - self._at)
                content = self._piece(part, self._at - start, count)
                view[: len(content)] = content
                self._at += len(content)
                return len(content)
        return 0

    def _piece(self, part: bytes | Piece, offset: int, count: int) -> bytes:
        if isinstance(part, bytes):
            return part[offset : offset + count]
        file = self._opened(part.source)
        file.seek(part.start + offset)
        content = file.read(count)
        if not content:
            raise OSError("a file became shorter while it was read")
        return content

    def _opened(self, source: Path | BinaryIO) -> BinaryIO:
        if not isinstance(source, Path):
            return source
        if self._open is None or self._open[0] != source:
            self._shut()
            self._open = (source, source.open("rb"))
        return self._open[1]

    def _shut(self) -> None:
        if self._open is not None:
            self._open[1].close()
            self._open = None

    def close(self) -> None:
        """See io."""
        self._shut()
        super().close()


def _refused(message: str, hint: str | None = None) -> DeclarationError:
    return DeclarationError(message, field="model", hint=hint)

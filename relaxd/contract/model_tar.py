"""The files of a model in a tar that nobody has vouched for, which is unpacked nowhere."""

import tarfile
from pathlib import Path, PurePosixPath
from typing import BinaryIO

from relaxd.contract.model_files import (
    Piece,
    choose_sent,
    files_in,
    finder,
    onnx_files,
    require_near,
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


def files_at(path: Path) -> dict[str, Piece]:
    """The files of the model in a folder, in a tar that is not packed, or in a file and beside it,
    by name in order; any other file is its own model. Raises DeclarationError, OSError.
    """
    if path.is_dir():
        return files_in(path)
    with path.open("rb") as file:
        if is_tar(file.read(START)):
            file.seek(0)
            return pieces_of_tar(file, path)
    alone = Piece.of(path)
    files = onnx_files(alone, finder(path.parent)) or {path.name: alone}
    require_near(files)
    return files


def pieces_of_tar(file: BinaryIO, source: Path | BinaryIO) -> dict[str, Piece]:
    """The model's own files in a tar that nobody has vouched for; source: where they are read later
    on. Raises DeclarationError for a tar that is malformed or leads out of itself, and for one that
    holds no model.
    """
    return choose_sent([(str(path), Piece(source, *span)) for path, span in _members(file).items()])


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


def _refused(message: str, hint: str | None = None) -> DeclarationError:
    return DeclarationError(message, field="model", hint=hint)

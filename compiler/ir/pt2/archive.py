"""Reads the parts of a `.pt2` archive that nobody has vouched for: a zip of JSON and raw tensors as
torch.export.save of torch 2.8 and later writes it. Nothing of it is run, and torch is not needed.

Parts are stored, not compressed, so that no part is larger than the file.
"""

from __future__ import annotations

import json
import mmap
import struct
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, NoReturn

from compiler.errors import LoadError

FORMAT = "archive_format"
_VERSIONS = ("0",)
_MOST_PARTS = 1 << 17
_LARGEST_TEXT = 1 << 29
_LOCAL_HEADER = struct.Struct("<4s22xHH")
_EXPORT_AGAIN = "save the program again with torch.export.save of torch 2.8 or later"


def refuse_malformed(why: str, **where: Any) -> NoReturn:
    """Raise LoadError for a file that no torch.export.save wrote."""
    raise LoadError(
        f"the .pt2 file is malformed: {why}",
        reason="pt2_malformed",
        field="model",
        hint=_EXPORT_AGAIN,
        **where,
    )


@contextmanager
def refusing_other_kinds() -> Iterator[None]:
    """Raise LoadError where the body meets a part that is missing, or of another kind than torch's
    schema has it.
    """
    try:
        yield
    except (KeyError, TypeError, AttributeError, ValueError, IndexError, RecursionError) as error:
        raise LoadError(
            "the .pt2 file is malformed: a part is missing, or of another kind than torch's schema "
            f"has it ({type(error).__name__}: {str(error)[:80]})",
            reason="pt2_malformed",
            field="model",
            hint=_EXPORT_AGAIN,
        ) from error


@dataclass(frozen=True)
class Archive:
    """Where the bytes of each part lie, by its path without the archive's own folder."""

    data: memoryview
    parts: Mapping[str, tuple[int, int]]

    def part(self, name: str) -> memoryview:
        """The bytes of a part, mapped into memory; raises LoadError where there is none."""
        if name not in self.parts:
            refuse_malformed(f"it has no part {name!r}")
        start, size = self.parts[name]
        return self.data[start : start + size]

    def document(self, name: str) -> Any:
        """A part as JSON; raises LoadError."""
        data = self.part(name)
        if data.nbytes > _LARGEST_TEXT:
            refuse_malformed(f"{name!r} has {data.nbytes} bytes of text")
        try:
            return json.loads(data.tobytes())
        except (ValueError, RecursionError) as error:
            raise LoadError(
                f"the .pt2 file is malformed: {name!r} is not JSON",
                reason="pt2_malformed",
                field="model",
                hint=_EXPORT_AGAIN,
            ) from error

    def text(self, name: str) -> str:
        """A part of a few characters; empty where there is none."""
        if name not in self.parts:
            return ""
        return self.part(name)[:64].tobytes().decode("ascii", "replace").strip()


def open_archive(path: Path) -> Archive:
    """Find every part and check the archive's own fields; raises LoadError."""
    try:
        with zipfile.ZipFile(path) as file:
            entries = file.infolist()
    except (OSError, zipfile.BadZipFile, ValueError, NotImplementedError) as error:
        raise LoadError(
            "the .pt2 file is truncated or no zip archive", reason="pt2_malformed", field="model"
        ) from error
    if len(entries) > _MOST_PARTS:
        refuse_malformed(f"it has {len(entries)} parts")
    with path.open("rb") as source:
        data = memoryview(mmap.mmap(source.fileno(), 0, access=mmap.ACCESS_READ))
    root = _root(entries)
    parts: dict[str, tuple[int, int]] = {}
    for entry in entries:
        name = _inside(entry.filename, root)
        if name in parts:
            refuse_malformed(f"it has two parts {name!r}")
        parts[name] = _extent(data, entry)
    archive = Archive(data, parts)
    _check(archive)
    return archive


def _root(entries: list[zipfile.ZipInfo]) -> str:
    """The folder that everything lies in, which is called after the file that was saved."""
    for entry in entries:
        folder, _, name = entry.filename.rpartition("/")
        if name == FORMAT:
            return f"{folder}/" if folder else ""
    if any(entry.filename.endswith("serialized_exported_program.json") for entry in entries):
        raise LoadError(
            "the .pt2 file is of a torch before 2.8, which pickled the weights",
            reason="pt2_version",
            field="model",
            hint=_EXPORT_AGAIN,
        )
    refuse_malformed(f"it has no {FORMAT}")


def _inside(name: str, root: str) -> str:
    path = PurePosixPath(name)
    if not name.startswith(root) or path.is_absolute() or ".." in path.parts or "\\" in name:
        refuse_malformed(f"the part {name[:80]!r} lies outside of its folder")
    return name.removeprefix(root)


def _extent(data: memoryview, entry: zipfile.ZipInfo) -> tuple[int, int]:
    """Where a part's bytes begin, and how many they are."""
    if entry.compress_type != zipfile.ZIP_STORED or entry.compress_size != entry.file_size:
        refuse_malformed(f"{entry.filename[:80]!r} is compressed")
    header = data[entry.header_offset : entry.header_offset + _LOCAL_HEADER.size].tobytes()
    if len(header) < _LOCAL_HEADER.size:
        refuse_malformed(f"{entry.filename[:80]!r} has no header")
    magic, name, extra = _LOCAL_HEADER.unpack(header)
    start = entry.header_offset + _LOCAL_HEADER.size + name + extra
    if magic != b"PK\x03\x04" or start + entry.file_size > data.nbytes:
        refuse_malformed(f"{entry.filename[:80]!r} goes on past the end of the file")
    return start, entry.file_size


def _check(archive: Archive) -> None:
    kind, version = archive.text(FORMAT), archive.text("archive_version")
    if kind != "pt2" or version not in _VERSIONS:
        raise LoadError(
            f"the archive is of format {kind!r}, version {version!r}; known is 'pt2' of version "
            f"{', '.join(map(repr, _VERSIONS))}",
            reason="pt2_version",
            field="model",
            hint=_EXPORT_AGAIN,
        )
    if archive.text("byteorder") not in ("", "little"):
        raise LoadError(
            "the weights were saved on a big-endian machine",
            reason="pt2_byteorder",
            field="model",
            hint="save the program on a little-endian machine",
        )

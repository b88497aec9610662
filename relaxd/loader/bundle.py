"""A bundle on disk: its manifest and its files, a directory or a tar, checked by hash."""

import hashlib
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import IO, Any

from relaxd.contract import numerics
from relaxd.contract.documents import MAX_BYTES, read_json
from relaxd.contract.manifest import FILENAME, HELPERS, FileEntry, Manifest
from relaxd.contract.numerics import Numerics
from relaxd.errors import BundleError, BundleNotFound
from relaxd.loader import layouts
from relaxd.loader.archive import budget_of, members

_SMALL, _PART = 1 << 20, 1 << 17
"""Bytes of a file that is kept, and of one that is read at once, into memory that caches hold."""

_READ = os.O_RDONLY | getattr(os, "O_BINARY", 0)
_FETCH_AGAIN = "fetch the bundle again"


@dataclass(frozen=True)
class Bundle:
    """An unpacked bundle.

    copied: whether its weights are read into memory of this process, not mapped.
    kept: of the files that a load reads after `verify`, the small ones as they were compared.
    """

    directory: Path
    manifest: Manifest
    copied: bool = False
    kept: dict[str, bytes] = field(default_factory=dict, repr=False, compare=False)

    def path(self, name: str) -> Path:
        """The file of that name; BundleError when the manifest does not list it."""
        if name not in self.manifest.files:
            raise BundleError(f"the manifest lists no {name}", hint="rebuild the bundle", file=name)
        return self.directory / name

    def verify(self) -> None:
        """Compare every listed file with its size and sha256; BundleError names the first that
        differs.
        """
        again = (self.manifest.library, HELPERS, numerics.FILENAME)
        for name, entry in self.manifest.files.items():
            whole = _SMALL if name in again else _PART
            content = _compared(os.path.join(self.directory, name), name, entry, whole)
            if content is not None and name in again:
                self.kept[name] = content

    def content(self, name: str) -> bytes:
        """The bytes of a listed file, those that were compared where they are kept; raises
        BundleError.
        """
        kept = self.kept.get(name)
        return self.read(name) if kept is None else kept

    def read(self, name: str) -> bytes:
        """The bytes of a listed file as it is now; raises BundleError where it changed since the
        manifest was checked.
        """
        content = self.path(name).read_bytes()
        if hashlib.sha256(content).hexdigest() != self.manifest.files[name].sha256:
            raise BundleError(
                f"{name} changed while the bundle was being loaded",
                hint="put a new bundle beside the old one and rename it",
                file=name,
            )
        return content

    def numerics(self) -> Numerics:
        """How the build was verified; without a report, nothing of it is known. Raises BundleError
        for a malformed report.
        """
        if numerics.FILENAME not in self.manifest.files:
            return Numerics()
        content = self.kept.get(numerics.FILENAME)
        if content is None:
            content = _text(self.path(numerics.FILENAME))
        return Numerics.from_json(read_json(content, numerics.FILENAME))


def sha256_of(path: str | PathLike[str]) -> str:
    """Lower-case hex sha256 of a file."""
    digest = hashlib.sha256()
    with open(path, "rb", buffering=0) as file:
        size = os.fstat(file.fileno()).st_size
        part = memoryview(bytearray(min(size + 1, _PART)))
        while count := file.readinto(part):
            digest.update(part[:count])
    return digest.hexdigest()


def _compared(path: str, name: str, entry: FileEntry, whole: int) -> bytes | None:
    """The bytes of the file of that name, None of one of more than `whole`; raises BundleError
    where it is not what its entry lists.
    """
    size = _size(path)
    if size is None:
        raise BundleError(f"{name} is missing from the bundle", hint=_FETCH_AGAIN, file=name)
    if size != entry.size:
        raise BundleError(
            f"{name} has {size} bytes; the manifest lists {entry.size}",
            hint=_FETCH_AGAIN,
            file=name,
        )
    content = _start(path, size + 1) if size <= whole else None
    digest = sha256_of(path) if content is None else hashlib.sha256(content).hexdigest()
    if digest != entry.sha256:
        raise BundleError(
            f"{name} does not have the sha256 of the manifest", hint=_FETCH_AGAIN, file=name
        )
    return content


def read_manifest(path: Path) -> Manifest:
    """The manifest of a bundle, directory or tar, without a look at its other files; raises
    BundleError.
    """
    if path.is_dir():
        return Manifest.from_json(_document(path))
    with members(path) as files:
        for name, size, content in files:
            if name == FILENAME:
                return Manifest.from_json(
                    read_json(content.read(min(size, MAX_BYTES + 1)), FILENAME)
                )
    raise BundleError(f"the tar holds no {FILENAME}", hint=_FETCH_AGAIN, file=FILENAME)


@contextmanager
def opened(path: Path) -> Iterator[Bundle]:
    """The bundle of a directory, or of a tar or an image layout unpacked into a temporary directory
    that is gone afterwards.
    """
    if path.is_dir():
        document = None if layouts.is_index(path) else _document(path)
        if document is not None and not layouts.is_image(document):
            yield Bundle(path, Manifest.from_json(document))
            return
        with layouts.laid_out(path) as directory:
            yield Bundle(directory, read_manifest(directory))
        return
    manifest = read_manifest(path)
    with tempfile.TemporaryDirectory(prefix="relaxd-") as scratch:
        directory = Path(scratch)
        _unpack(path, manifest, directory)
        yield Bundle(directory, manifest)


def _unpack(path: Path, manifest: Manifest, directory: Path) -> None:
    """Write the files that the manifest lists, of the sizes that it lists."""
    wanted = dict(manifest.files)
    if sum(entry.size for entry in wanted.values()) > budget_of(path):
        raise BundleError(
            f"{path} is too small for the files that its manifest lists",
            hint="unpack it yourself, and load the folder",
        )
    with members(path) as files:
        for name, size, content in files:
            if (entry := wanted.pop(name, None)) is None:
                continue
            if size != entry.size:
                raise BundleError(
                    f"{name} has {size} bytes; the manifest lists {entry.size}",
                    hint=_FETCH_AGAIN,
                    file=name,
                )
            _write(directory / name, content)
    if wanted:
        name = next(iter(wanted))
        raise BundleError(f"the tar holds no {name}", hint=_FETCH_AGAIN, file=name)


def _write(path: Path, content: IO[bytes]) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("xb") as file:
            shutil.copyfileobj(content, file, 1 << 20)
    except FileExistsError as error:
        raise BundleError(f"{path.name} stands where a folder has to be", file=path.name) from error


def _document(directory: Path) -> Any:
    """What manifest.json of a folder says."""
    path = os.path.join(directory, FILENAME)
    if _size(path) is None:
        raise BundleNotFound(
            f"{directory} holds no {FILENAME}", hint="give the directory or tar that a build wrote"
        )
    return read_json(_text(path), FILENAME)


def _text(path: str | PathLike[str]) -> bytes:
    """The bytes of a document, up to one more than `read_json` takes; raises BundleError."""
    try:
        return _start(path, min(os.stat(path).st_size, MAX_BYTES) + 1)
    except OSError as error:
        name = os.path.basename(path)
        raise BundleError(
            f"{name} cannot be read: {error}", hint=_FETCH_AGAIN, file=name
        ) from error


def _size(path: str) -> int | None:
    """The size of a file; None where there is none."""
    try:
        status = os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    return status.st_size if stat.S_ISREG(status.st_mode) else None


def _start(path: str | PathLike[str], count: int) -> bytes:
    """The first bytes of a file, as many as there are up to `count`; raises OSError.

    Python's objects of open files take several times as long as a small file's bytes.
    """
    descriptor = os.open(path, _READ)
    try:
        content = os.read(descriptor, count)
        while len(content) < count and (more := os.read(descriptor, count - len(content))):
            content += more
        return content
    finally:
        os.close(descriptor)

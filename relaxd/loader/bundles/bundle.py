"""A bundle on disk: its manifest and its files, a directory or a tar, checked by hash."""

import hashlib
import os
import shutil
import stat
import sys
import tempfile
from collections.abc import Container, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import IO, Any

from relaxd.contract.bundle import kernels, numerics
from relaxd.contract.bundle.manifest import FILENAME, HELPERS, FileEntry, Manifest
from relaxd.contract.bundle.numerics import Numerics
from relaxd.contract.documents import MAX_BYTES, read_json
from relaxd.errors import BundleError, BundleNotFound
from relaxd.loader.bundles import layouts
from relaxd.loader.bundles.archive import budget_of, members

_SMALL, _PART = 1 << 20, 1 << 17
"""Bytes of a file that is kept, and of one that is read at once, into memory that caches hold."""

_AGAIN = (HELPERS, numerics.FILENAME)
"""Files that a load reads after it compared them."""
_REPORTS = (kernels.FILENAME, "model.h", "LICENSES")
"""Files that no call depends on: a load compares their sizes alone, `Bundle.report` the rest."""

_IN_MEMORY = sys.platform.startswith("linux")
"""Whether there are anonymous files in memory."""

READ = os.O_RDONLY | getattr(os, "O_BINARY", 0) | getattr(os, "O_NONBLOCK", 0)
"""How files are opened: where a pipe stands in place of one, nobody waits for its other end."""
_FETCH_AGAIN = "fetch the bundle again"


@dataclass
class Bundle:
    """An unpacked bundle. Its folder is a text: Python's paths take as long to make as a file to
    open.

    copied: whether its weights are read into memory of this process, not mapped.
    contents: of the files that a load reads after `verify`, the small ones as they were compared.
    copies: the library as it was compared, by the descriptor of an anonymous file in memory, where
    the system has such files; `own_copy` takes it, `close` closes it.
    """

    directory: str
    manifest: Manifest
    copied: bool = False
    contents: dict[str, bytes] = field(default_factory=dict, repr=False, compare=False)
    copies: dict[str, int] = field(default_factory=dict, repr=False, compare=False)

    def path(self, name: str) -> Path:
        """The file of that name; BundleError when the manifest does not list it."""
        return Path(self.path_of(name))

    def path_of(self, name: str) -> str:
        """The same as text."""
        self.entry(name)
        return f"{self.directory}/{name}"

    def entry(self, name: str) -> FileEntry:
        """The size and hash that the manifest lists for a file; BundleError when it lists none."""
        entry = self.manifest.files.get(name)
        if entry is None:
            raise BundleError(f"the manifest lists no {name}", hint="rebuild the bundle", file=name)
        return entry

    def verify(self, copied: Container[str] = ()) -> None:
        """Compare every listed file with its size, and all but reports with their sha256;
        BundleError names the first that differs.

        copied: sha256 of libraries of which no copy is needed.
        """
        library = self.manifest.library
        for name, entry in self.manifest.files.items():
            path = f"{self.directory}/{name}"
            if name == library and _IN_MEMORY and entry.sha256 not in copied:
                self.copies[name] = os.memfd_create("relaxd-model.so")
                _copy(path, name, entry, self.copies[name])
            elif name in _AGAIN and entry.size <= _SMALL:
                self.contents[name] = _compared(path, name, entry)
            elif name in _REPORTS and name != library:
                _check_size(path, name, entry)
            elif entry.size <= _PART:
                _compared(path, name, entry)
            else:
                _compare(path, name, entry)

    def close(self) -> None:
        """Close copies that nobody took."""
        while self.copies:
            os.close(self.copies.popitem()[1])

    def report(self, name: str) -> bytes | None:
        """The bytes of a report, None where the manifest lists none of that name; raises
        BundleError where it is not what the manifest lists.
        """
        if name not in self.manifest.files:
            return None
        entry = self.manifest.files[name]
        if entry.size > MAX_BYTES:
            raise BundleError(f"{name} has more than {MAX_BYTES} bytes", file=name)
        return _compared(f"{self.directory}/{name}", name, entry)

    def content(self, name: str) -> bytes:
        """The bytes of a listed file, those of `contents` where they are there; raises
        BundleError.
        """
        compared = self.contents.get(name)
        return self.read(name) if compared is None else compared

    def read(self, name: str) -> bytes:
        """The bytes of a listed file as it is now; raises BundleError where it changed since the
        manifest was checked.
        """
        content = self.path(name).read_bytes()
        if _digest(content) != self.entry(name).sha256:
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
        content = self.contents.get(numerics.FILENAME)
        if content is None:
            entry = self.manifest.files[numerics.FILENAME]
            content = _text(self.path_of(numerics.FILENAME), entry.size)
        return Numerics.from_json(read_json(content, numerics.FILENAME))


def sha256_of(path: str | PathLike[str], copy: int | None = None) -> str:
    """Lower-case hex sha256 of a file. copy: the descriptor of a file that receives its bytes: in
    parts, since memory for the whole takes longer to come by than a hash.
    """
    digest = hashlib.sha256()
    with open(path, "rb", buffering=0) as file:
        size = os.fstat(file.fileno()).st_size
        part = memoryview(bytearray(min(size + 1, _PART)))
        while count := file.readinto(part):
            digest.update(part[:count])
            if copy is not None:
                write_all(copy, part[:count])
    return digest.hexdigest()


def write_all(descriptor: int, content: bytes | memoryview) -> None:
    """Write every byte."""
    rest = memoryview(content)
    while rest:
        rest = rest[os.write(descriptor, rest) :]


def _compared(path: str, name: str, entry: FileEntry) -> bytes:
    """The bytes of the file of that name; raises BundleError where it is not what its entry
    lists.
    """
    with suppress(OSError):
        content = _start(path, entry.size)
        if len(content) == entry.size and _digest(content) == entry.sha256:
            return content
    _check_size(path, name, entry)
    raise _differs(name)


def _copy(path: str, name: str, entry: FileEntry, copy: int) -> None:
    """The same of a file whose bytes go to a file that is open as `copy`."""
    if entry.size <= _PART:
        write_all(copy, _compared(path, name, entry))
    else:
        _compare(path, name, entry, copy)


def _compare(path: str, name: str, entry: FileEntry, copy: int | None = None) -> None:
    """The same of a file that is not kept. copy: as of `sha256_of`."""
    _check_size(path, name, entry)
    if sha256_of(path, copy) != entry.sha256:
        raise _differs(name)


def _differs(name: str) -> BundleError:
    return BundleError(
        f"{name} does not have the sha256 of the manifest", hint=_FETCH_AGAIN, file=name
    )


_SHA256 = hashlib.sha256()
"""Of nothing: a new one looks for its algorithm, which takes longer than a small file."""


def _digest(content: bytes) -> str:
    digest = _SHA256.copy()
    digest.update(content)
    return digest.hexdigest()


def _check_size(path: str, name: str, entry: FileEntry) -> None:
    size = _size(path)
    if size is None:
        raise BundleError(f"{name} is missing from the bundle", hint=_FETCH_AGAIN, file=name)
    if size != entry.size:
        raise BundleError(
            f"{name} has {size} bytes; the manifest lists {entry.size}",
            hint=_FETCH_AGAIN,
            file=name,
        )


def read_manifest(path: Path) -> Manifest:
    """The manifest of a bundle, directory or tar, without a look at its other files; raises
    BundleError.
    """
    document = _document(path)
    if document is not None:
        return Manifest.from_json(document)
    if path.is_dir():
        raise _no_bundle(path)
    with members(path) as files:
        for name, size, content in files:
            if name == FILENAME:
                return Manifest.from_json(
                    read_json(content.read(min(size, MAX_BYTES + 1)), FILENAME)
                )
    raise BundleError(f"the tar holds no {FILENAME}", hint=_FETCH_AGAIN, file=FILENAME)


@contextmanager
def open_bundle(path: str | PathLike[str]) -> Iterator[Bundle]:
    """The bundle of a directory, or of a tar or an image layout unpacked into a temporary directory
    that is gone afterwards.
    """
    folder = os.fspath(path)
    document = _document(folder)
    if isinstance(document, dict) and not layouts.is_image(document):
        yield Bundle(folder, Manifest.from_json(document))
        return
    if document is not None or layouts.is_index(folder):
        with layouts.laid_out(Path(folder)) as directory:
            yield Bundle(str(directory), read_manifest(directory))
        return
    if os.path.isdir(folder):
        raise _no_bundle(folder)
    manifest = read_manifest(Path(folder))
    with tempfile.TemporaryDirectory(prefix="relaxd-") as scratch:
        _unpack(Path(folder), manifest, Path(scratch))
        yield Bundle(scratch, manifest)


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
        raise BundleError(f"{path.name} is a file, but must be a folder", file=path.name) from error


def _document(directory: str | PathLike[str]) -> Any:
    """Read manifest.json of a folder; None where there is none."""
    path = f"{directory}/{FILENAME}"
    size = _size(path)
    return None if size is None else read_json(_text(path, size), FILENAME)


def _no_bundle(directory: str | PathLike[str]) -> BundleNotFound:
    return BundleNotFound(
        f"{directory} holds no {FILENAME}", hint="give the directory or tar that a build wrote"
    )


def _text(path: str | PathLike[str], size: int) -> bytes:
    """The bytes of a document of that size, up to one more than `read_json` takes; raises
    BundleError.
    """
    try:
        return _start(path, min(size, MAX_BYTES))
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


def _start(path: str | PathLike[str], size: int) -> bytes:
    """The first `size` bytes of a file, fewer where it has fewer, and up to one more that shows
    where it has more; raises OSError.

    Python's objects of open files take several times as long as a small file's bytes.
    """
    descriptor = os.open(path, READ)
    try:
        content = os.read(descriptor, size + 1)
        while len(content) < size and (more := os.read(descriptor, size + 1 - len(content))):
            content += more
        return content
    finally:
        os.close(descriptor)

"""A bundle on disk: its manifest and its files, a directory or a tar, checked by hash."""

import hashlib
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import IO, Any

from relaxd.contract import numerics
from relaxd.contract.documents import MAX_BYTES, read_json
from relaxd.contract.manifest import FILENAME, Manifest
from relaxd.contract.numerics import Numerics
from relaxd.errors import BundleError, BundleNotFound
from relaxd.loader import layouts
from relaxd.loader.archive import budget_of, members

_SMALL, _PART = 1 << 15, 1 << 20
_FETCH_AGAIN = "fetch the bundle again"


@dataclass(frozen=True)
class Bundle:
    """An unpacked bundle.

    copied: whether its weights are read into memory of this process, not mapped.
    """

    directory: Path
    manifest: Manifest
    copied: bool = False

    def path(self, name: str) -> Path:
        """The file of that name; BundleError when the manifest does not list it."""
        if name not in self.manifest.files:
            raise BundleError(f"the manifest lists no {name}", hint="rebuild the bundle", file=name)
        return self.directory / name

    def verify(self) -> None:
        """Compare every listed file with its size and sha256; BundleError names the first that
        differs.
        """
        for name, entry in self.manifest.files.items():
            path = os.path.join(self.directory, name)
            try:
                status = os.stat(path)
            except (FileNotFoundError, NotADirectoryError):
                status = None
            if status is None or not stat.S_ISREG(status.st_mode):
                raise BundleError(
                    f"{name} is missing from the bundle", hint=_FETCH_AGAIN, file=name
                )
            if status.st_size != entry.size:
                raise BundleError(
                    f"{name} has {status.st_size} bytes; the manifest lists {entry.size}",
                    hint=_FETCH_AGAIN,
                    file=name,
                )
            if sha256_of(path) != entry.sha256:
                raise BundleError(
                    f"{name} does not have the sha256 of the manifest", hint=_FETCH_AGAIN, file=name
                )

    def numerics(self) -> Numerics:
        """How the build was verified; without a report, nothing of it is known. Raises BundleError
        for a malformed report.
        """
        if numerics.FILENAME not in self.manifest.files:
            return Numerics()
        return Numerics.from_json(
            read_json(_content(self.path(numerics.FILENAME)), numerics.FILENAME)
        )


def sha256_of(path: str | PathLike[str]) -> str:
    """Lower-case hex sha256 of a file."""
    with open(path, "rb", buffering=0) as file:
        # `file_digest` makes a buffer of 256 KiB, which takes longer than a small file's digest.
        first = file.read(_SMALL) or b""
        digest = hashlib.sha256(first)
        if len(first) == _SMALL:
            while part := file.read(_PART):
                digest.update(part)
        return digest.hexdigest()


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
    file = directory / FILENAME
    if not file.is_file():
        raise BundleNotFound(
            f"{directory} holds no {FILENAME}", hint="give the directory or tar that a build wrote"
        )
    return read_json(_content(file), FILENAME)


def _content(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(MAX_BYTES + 1)
    except OSError as error:
        raise BundleError(
            f"{path} cannot be read: {error}", hint=_FETCH_AGAIN, file=path.name
        ) from error

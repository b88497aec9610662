"""A bundle on disk: its manifest and its files, a directory or a tar, checked by hash."""

import hashlib
import json
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from relaxd.contract import numerics
from relaxd.contract.manifest import FILENAME, Manifest
from relaxd.contract.numerics import Numerics
from relaxd.errors import BundleError

_FETCH_AGAIN = "fetch the bundle again"


@dataclass(frozen=True)
class Bundle:
    """An unpacked bundle."""

    directory: Path
    manifest: Manifest

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
            path = self.directory / _safe(name)
            if not path.is_file():
                raise BundleError(
                    f"{name} is missing from the bundle", hint=_FETCH_AGAIN, file=name
                )
            if path.stat().st_size != entry.size:
                raise BundleError(
                    f"{name} has {path.stat().st_size} bytes; the manifest lists {entry.size}",
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
            _json(self.path(numerics.FILENAME).read_bytes(), numerics.FILENAME)
        )


def sha256_of(path: Path) -> str:
    """Lower-case hex sha256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def read_manifest(path: Path) -> Manifest:
    """The manifest of a bundle, directory or tar, without a look at its other files; raises
    BundleError.
    """
    if path.is_dir():
        file = path / FILENAME
        if not file.is_file():
            raise BundleError(
                f"{path} holds no {FILENAME}", hint="give the directory or tar that a build wrote"
            )
        return _parse(file.read_bytes())
    with _tar(path) as tar:
        return _parse(_content(tar, FILENAME))


@contextmanager
def opened(path: Path) -> Iterator[Bundle]:
    """The bundle of a directory, or of a tar unpacked into a temporary directory that is gone
    afterwards.
    """
    manifest = read_manifest(path)
    if path.is_dir():
        yield Bundle(path, manifest)
        return
    with tempfile.TemporaryDirectory(prefix="relaxd-") as scratch:
        directory = Path(scratch)
        with _tar(path) as tar:
            for name in manifest.files:
                target = directory / _safe(name)
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(_content(tar, name))
        yield Bundle(directory, manifest)


def _parse(data: bytes) -> Manifest:
    return Manifest.from_json(_json(data, FILENAME))


def _json(data: bytes, name: str) -> Any:
    try:
        return json.loads(data)
    except ValueError as error:
        raise BundleError(f"{name} is not JSON: {error}", hint=_FETCH_AGAIN, file=name) from error


def _safe(name: str) -> str:
    """The name itself; BundleError when it would lead out of the bundle."""
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or "\0" in name:
        raise BundleError(f"the manifest lists {name!r}, which is outside the bundle", file=name)
    return name


@contextmanager
def _tar(path: Path) -> Iterator[tarfile.TarFile]:
    if not path.exists():
        raise BundleError(
            f"there is no bundle at {path}", hint="give the directory or tar that a build wrote"
        )
    try:
        with tarfile.open(path) as tar:
            yield tar
    except (tarfile.TarError, EOFError, OSError) as error:
        raise BundleError(
            f"{path} is neither a bundle directory nor a readable tar: {error}", hint=_FETCH_AGAIN
        ) from error


def _content(tar: tarfile.TarFile, name: str) -> bytes:
    members = {member.name.removeprefix("./"): member for member in tar if member.isreg()}
    file = tar.extractfile(members[name]) if name in members else None
    if file is None:
        raise BundleError(f"the tar holds no {name}", hint=_FETCH_AGAIN, file=name)
    return file.read()

"""Bundles as container tools copy them to disk: `skopeo copy` to `dir:` and OCI image layouts."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from os import PathLike
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from relaxd.contract.bundle.manifest import FILENAME
from relaxd.contract.documents import (
    MAX_BYTES,
    file_name,
    mapping,
    read_json,
    sequence,
    sha256,
    text,
)
from relaxd.errors import BundleError

LAYOUT, INDEX = "oci-layout", "index.json"
TITLE = "org.opencontainers.image.title"
_TARGET = "org.relaxd.target"


def is_index(directory: str | PathLike[str]) -> bool:
    """True if the folder is an OCI image layout."""
    return os.path.isfile(f"{directory}/{LAYOUT}")


def is_image(document: Any) -> bool:
    """True if a manifest.json is that of an image, beside which blobs lie by their digests, and
    not that of a bundle.
    """
    return "layers" in mapping(document, FILENAME)


@contextmanager
def laid_out(directory: Path) -> Iterator[Path]:
    """A folder with the bundle's files under their names, gone afterwards; raises BundleError."""
    with TemporaryDirectory(prefix="relaxd-") as scratch:
        for name, blob in _files(directory).items():
            _link(blob, Path(scratch, name))
        yield Path(scratch)


def _files(directory: Path) -> dict[str, Path]:
    """Each file's name and its blob."""
    if not is_index(directory):
        manifest, blobs = directory / FILENAME, directory
    else:
        blobs = directory / "blobs" / "sha256"
        manifest = blobs / _only(_document(directory / INDEX))
    files = {}
    for layer in sequence(_document(manifest).get("layers"), "the layers"):
        title = mapping(mapping(layer, "a layer").get("annotations", {}), "annotations").get(TITLE)
        files[file_name(title)] = blobs / _hexadecimal(layer)
    if FILENAME not in files:
        raise BundleError(
            f"{directory} holds an image that is not a bundle: it has no {FILENAME}",
            hint="copy a bundle of a relaxd service",
        )
    return files


def _only(index: dict[str, Any]) -> str:
    listed = [mapping(entry, "a manifest") for entry in sequence(index.get("manifests"), INDEX)]
    if len(listed) != 1:
        named = [str((entry.get("annotations") or {}).get(_TARGET, "?")) for entry in listed]
        raise BundleError(
            f"the layout holds {len(listed)} images: {', '.join(named)}",
            hint="copy the image of one target to a folder of its own",
        )
    return _hexadecimal(listed[0])


def _hexadecimal(descriptor: dict[str, Any]) -> str:
    digest = text(descriptor.get("digest"), "a digest")
    return sha256(digest.removeprefix("sha256:"), "a digest")


def _document(path: Path) -> dict[str, Any]:
    try:
        with path.open("rb") as file:
            return mapping(read_json(file.read(MAX_BYTES + 1), path.name), path.name)
    except OSError as error:
        raise BundleError(
            f"{path} cannot be read: {error}", hint="copy the bundle again", file=path.name
        ) from error


def _link(blob: Path, path: Path) -> None:
    """The blob under the file's name. A library is never a symbolic link: what is open is known by
    the name it has in the end.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.link(blob, path)
    except FileNotFoundError as error:
        raise BundleError(
            f"the layout lacks the blob of {path.name}", hint="copy the bundle again"
        ) from error
    except FileExistsError as error:
        raise BundleError(f"the image has two files {path.name}", file=path.name) from error
    except OSError:  # another file system, or one without links
        if path.suffix == ".bin":
            path.symlink_to(blob.absolute())
        else:
            shutil.copyfile(blob, path)

"""Bundles as OCI artifacts: one manifest a bundle, each file a layer, one index for the targets of
a job.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from artifacts.documents import (
    BUNDLE,
    EMPTY,
    EMPTY_CONTENT,
    INDEXES,
    TITLE,
    Descriptor,
    Document,
    index_bytes,
    manifest_bytes,
    read_document,
)
from artifacts.errors import InvalidManifest, UnsafeTitle
from artifacts.store import BlobStore, put_file

REPOSITORY = "relaxd/bundles"
JOB_TAG = "job-"
"""How tags of REPOSITORY begin that name the index of a job."""
REPRODUCER = "application/vnd.relaxd.reproducer.v1"
"""The type of an artifact that shows again why a build failed with `verify.mismatch`."""
ACTION_KEY = "org.relaxd.action-key"
TARGET = "org.relaxd.target"
FEATURES = "org.relaxd.features"
DEVICE = "org.relaxd.device"
STATUS = "org.relaxd.status"
ARCHITECTURES = {
    "x86_64": "amd64",
    "aarch64": "arm64",
    "i686": "386",
    "armv7l": "arm",
    "loongarch64": "loong64",
    "wasm32": "wasm",
}
"""Go's names, which OCI takes, where they are not those of `uname -m` (riscv64, ppc64le, s390x).
"""
SYSTEMS = {"win32": "windows"}
VARIANTS = {"armv7l": "v7"}
_LEVELS = (("v4", "avx512vl"), ("v3", "avx2"), ("v2", "sse4_2"))
"""Variants of amd64, by a feature that only such processors have."""
MEDIA_TYPES = {".json": "application/json", ".so": "application/vnd.relaxd.library.v1"}


@dataclass(frozen=True)
class Published:
    """A bundle in the store: its manifest's digest, the bytes of all its files, and its reference
    in this registry.
    """

    digest: str
    size: int
    ref: str


@dataclass(frozen=True)
class IndexEntry:
    """One target of a job: `digest` of its bundle, architecture and OS as Python spells them, ISA
    features.

    variant: by default what the architecture and the features make it; status: how the build was
    verified.
    """

    digest: str
    target: str
    architecture: str
    os: str = "linux"
    variant: str | None = None
    features: tuple[str, ...] = ()
    device: str = "cpu"
    status: str | None = None


def bundle_annotations(action_key: str, target: str) -> dict[str, str]:
    """The annotations of a bundle's manifest."""
    return {ACTION_KEY: action_key, TARGET: target}


def publish_bundle(
    blobs: BlobStore,
    directory: Path,
    annotations: dict[str, str] | None = None,
    without: frozenset[str] = frozenset(),
) -> Published:
    """Store every file under `directory`, but those named in `without`, and the manifest that lists
    them; the same bundle gives the same digest.

    The manifest is written last, so whoever can see it can fetch it. Raises UnsafeTitle for
    anything but plain files.
    """
    return publish_files(blobs, directory, BUNDLE, annotations or {}, without=without)


def publish_files(
    blobs: BlobStore,
    directory: Path,
    artifact_type: str,
    annotations: dict[str, str],
    subject: Descriptor | None = None,
    without: frozenset[str] = frozenset(),
) -> Published:
    """Publish a folder as `publish_bundle` does, as an artifact of any type; subject: the manifest
    that it belongs to.
    """
    files = [path for path in _files(directory) if str(path.relative_to(directory)) not in without]
    layers = [_publish_file(blobs, directory, path) for path in files]
    config = blobs.put(EMPTY_CONTENT)
    empty = Descriptor(EMPTY, config.digest, config.size)
    data = manifest_bytes(artifact_type, empty, layers, annotations, subject)
    digest = blobs.put(data).digest
    return Published(digest, sum(layer.size for layer in layers), f"{REPOSITORY}@{digest}")


def _files(directory: Path) -> list[Path]:
    paths = sorted(path for path in directory.rglob("*") if path.is_symlink() or not path.is_dir())
    for path in paths:
        if path.is_symlink() or not path.is_file():
            raise UnsafeTitle(
                f"{path.relative_to(directory)} is not a plain file",
                hint="a bundle holds plain files and folders only",
            )
    if not paths:
        raise InvalidManifest(f"{directory.name} is not a bundle: it holds no files")
    return paths


def _publish_file(blobs: BlobStore, directory: Path, path: Path) -> Descriptor:
    blob = put_file(blobs, path)
    media_type = MEDIA_TYPES.get(path.suffix, "application/octet-stream")
    return Descriptor(
        media_type, blob.digest, blob.size, {TITLE: path.relative_to(directory).as_posix()}
    )


def publish_index(blobs: BlobStore, entries: Iterable[IndexEntry]) -> str:
    """Store the index over the bundles of one job, ordered by target; its digest. Raises
    BlobNotFound for an absent bundle.
    """
    manifests = [
        _index_entry(blobs, entry) for entry in sorted(entries, key=lambda entry: entry.target)
    ]
    return blobs.put(index_bytes(manifests)).digest


def _index_entry(blobs: BlobStore, entry: IndexEntry) -> dict[str, Any]:
    document = read_document(blobs, entry.digest)
    annotations = {TARGET: entry.target} | (
        {FEATURES: ",".join(entry.features)} if entry.features else {}
    )
    annotations |= {DEVICE: entry.device} if entry.device != "cpu" else {}
    annotations |= {STATUS: entry.status} if entry.status else {}
    descriptor = Descriptor(
        document.media_type, entry.digest, blobs.size(entry.digest), annotations
    )
    platform = {
        "architecture": ARCHITECTURES.get(entry.architecture, entry.architecture),
        "os": SYSTEMS.get(entry.os, entry.os),
    }
    variant = entry.variant or _variant(entry)
    platform |= {"variant": variant} if variant else {}
    return descriptor.to_json() | {"platform": platform}


def _variant(entry: IndexEntry) -> str | None:
    if entry.architecture == "x86_64":
        return next((variant for variant, feature in _LEVELS if feature in entry.features), None)
    return VARIANTS.get(entry.architecture)


def bundle_files(document: Document) -> dict[str, Descriptor]:
    """The bundle's layers by file name; raises InvalidManifest, and UnsafeTitle for a name that is
    not safe to write.
    """
    if document.media_type in INDEXES:
        targets = sorted(child.annotations.get(TARGET, "?") for child in document.children)
        raise InvalidManifest(
            f"this is an index over targets {', '.join(targets)}",
            hint="name the bundle of one target",
        )
    files: dict[str, Descriptor] = {}
    for layer in document.layers:
        title = _safe(layer.annotations.get(TITLE, ""))
        if title in files:
            raise UnsafeTitle(f"two layers have the title {title!r}")
        files[title] = layer
    if not files:
        raise InvalidManifest("the manifest lists no files")
    for title in files:
        if clash := [
            parent.as_posix()
            for parent in PurePosixPath(title).parents
            if parent.as_posix() in files
        ]:
            raise UnsafeTitle(f"the title {clash[0]!r} is both a file and a folder")
    return files


def _safe(title: str) -> str:
    parts = title.split("/")
    if any(
        part in ("", ".", "..")
        or len(part.encode()) > 255
        or not part.isprintable()
        or "\\" in part
        for part in parts
    ):
        raise UnsafeTitle(
            f"a layer's title is {title[:200]!r}",
            hint="a title is a relative path with forward slashes, without `.` or `..`",
        )
    return title

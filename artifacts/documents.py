"""OCI image-spec 1.1 documents: their media types, how they are read, and what they refer to."""

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from artifacts.errors import BlobCorrupt, BlobNotFound, InvalidDigest, InvalidManifest
from artifacts.store import BlobStore
from relaxd.contract.canonical import canonical_bytes, is_digest

MANIFEST = "application/vnd.oci.image.manifest.v1+json"
INDEX = "application/vnd.oci.image.index.v1+json"
DOCKER_MANIFEST = "application/vnd.docker.distribution.manifest.v2+json"
DOCKER_INDEX = "application/vnd.docker.distribution.manifest.list.v2+json"
MANIFESTS = frozenset({MANIFEST, DOCKER_MANIFEST})
INDEXES = frozenset({INDEX, DOCKER_INDEX})
EMPTY = "application/vnd.oci.empty.v1+json"
BUNDLE = "application/vnd.relaxd.bundle.v1"
TITLE = "org.opencontainers.image.title"
EMPTY_CONTENT = b"{}"
MAX_MANIFEST = 4 << 20
MAX_DESCRIPTORS = 4096
MAX_ANNOTATIONS = 1024


@dataclass(frozen=True)
class Descriptor:
    """A reference to a blob: media type, digest, size in bytes."""

    media_type: str
    digest: str
    size: int
    annotations: dict[str, str] = field(default_factory=dict)

    @classmethod
    def from_json(cls, document: Any) -> "Descriptor":
        """Read a descriptor; raises InvalidManifest."""
        try:
            descriptor = cls(
                document["mediaType"],
                document["digest"],
                document["size"],
                dict(document.get("annotations") or {}),
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise InvalidManifest(
                f"a descriptor is malformed: {error!r}", hint="give it mediaType, digest and size"
            ) from error
        typed = (
            isinstance(descriptor.media_type, str)
            and isinstance(descriptor.digest, str)
            and type(descriptor.size) is int
        )
        if (
            not typed
            or not _is_text_map(descriptor.annotations)
            or descriptor.size < 0
            or not is_digest(descriptor.digest)
        ):
            raise InvalidManifest(
                f"a descriptor has a wrong mediaType, digest or size: {descriptor}",
                hint="digests are sha256:<64 hex>",
            )
        return descriptor

    def to_json(self) -> dict[str, Any]:
        """The document, without empty annotations."""
        document: dict[str, Any] = {
            "mediaType": self.media_type,
            "digest": self.digest,
            "size": self.size,
        }
        return document | (
            {"annotations": dict(sorted(self.annotations.items()))} if self.annotations else {}
        )


@dataclass(frozen=True)
class Document:
    """A manifest or an index; `children` are the manifests that an index lists, `blobs` a
    manifest's config and layers.
    """

    media_type: str
    artifact_type: str | None
    layers: tuple[Descriptor, ...]
    blobs: tuple[Descriptor, ...]
    children: tuple[Descriptor, ...]
    subject: Descriptor | None
    annotations: dict[str, str]
    json: dict[str, Any]


def parse(data: bytes) -> Document:
    """Read a manifest or an index of OCI's or Docker's type; raises InvalidManifest."""
    if len(data) > MAX_MANIFEST:
        raise InvalidManifest(
            f"a manifest has {len(data)} bytes, more than {MAX_MANIFEST}",
            hint="keep data in layers",
        )
    document = _json(data)
    media_type = _media_type(document)
    if document.get("schemaVersion") != 2:
        raise InvalidManifest("a manifest's schemaVersion is not 2")
    if len(document.get("annotations") or ()) > MAX_ANNOTATIONS:
        raise InvalidManifest(f"a manifest has more than {MAX_ANNOTATIONS} annotations")
    if not isinstance(document.get("artifactType", ""), str) or not _is_text_map(
        document.get("annotations") or {}
    ):
        raise InvalidManifest(
            "a manifest's artifactType is not a text, or its annotations are not texts by name"
        )
    config = [Descriptor.from_json(document.get("config"))] if media_type in MANIFESTS else []
    layers = _descriptors(document, "layers") if media_type in MANIFESTS else ()
    return Document(
        media_type=media_type,
        artifact_type=document.get("artifactType") or (config[0].media_type if config else None),
        layers=layers,
        blobs=(*config, *layers),
        children=_descriptors(document, "manifests") if media_type in INDEXES else (),
        subject=Descriptor.from_json(document["subject"]) if document.get("subject") else None,
        annotations=document.get("annotations") or {},
        json=document,
    )


def _json(data: bytes) -> Any:
    """The document in JSON of UTF-8; raises InvalidManifest, also for texts with lone surrogates,
    which could not be sent again.
    """
    try:
        document = json.loads(data.decode())
        json.dumps(document, ensure_ascii=False).encode()
    except UnicodeError as error:
        raise InvalidManifest(f"a manifest has a text that is not valid UTF-8: {error}") from error
    except (ValueError, RecursionError) as error:
        raise InvalidManifest(f"a manifest is not JSON: {error}") from error
    return document


def _media_type(document: Any) -> str:
    """The document's own mediaType, or what its fields make it when it has none (OCI lets it be
    left out).
    """
    if not isinstance(document, dict):
        raise InvalidManifest("a manifest is not a JSON object")
    inferred = INDEX if "manifests" in document else MANIFEST
    media_type = document.get("mediaType", inferred)
    if not isinstance(media_type, str) or media_type not in MANIFESTS | INDEXES:
        raise InvalidManifest(
            f"a manifest has mediaType {media_type!r}", hint=f"use {MANIFEST} or {INDEX}"
        )
    return media_type


def _is_text_map(value: Any) -> bool:
    return isinstance(value, dict) and all(
        isinstance(text, str) for pair in value.items() for text in pair
    )


def _descriptors(document: dict[str, Any], key: str) -> tuple[Descriptor, ...]:
    listed = document.get(key)
    if not isinstance(listed, list):
        raise InvalidManifest(f"a manifest's {key} is not a list")
    if len(listed) > MAX_DESCRIPTORS:
        raise InvalidManifest(
            f"a manifest has {len(listed)} {key}, more than {MAX_DESCRIPTORS}",
            hint="pack files together",
        )
    return tuple(Descriptor.from_json(entry) for entry in listed)


def read_document(blobs: BlobStore, digest: str) -> Document:
    """Read a stored manifest or index; raises BlobNotFound, BlobCorrupt, InvalidManifest,
    InvalidDigest.
    """
    if (size := blobs.size(digest)) > MAX_MANIFEST:
        raise InvalidManifest(f"blob {digest} has {size} bytes: it is not a manifest")
    return parse(blobs.read(digest))


def manifest_bytes(
    artifact_type: str,
    config: Descriptor,
    layers: list[Descriptor],
    annotations: dict[str, str],
    subject: Descriptor | None = None,
) -> bytes:
    """An image manifest in canonical bytes."""
    document: dict[str, Any] = {
        "schemaVersion": 2,
        "mediaType": MANIFEST,
        "artifactType": artifact_type,
        "config": config.to_json(),
        "layers": [layer.to_json() for layer in layers],
    }
    document |= {"annotations": annotations} if annotations else {}
    document |= {"subject": subject.to_json()} if subject else {}
    return canonical_bytes(document)


def index_bytes(manifests: list[dict[str, Any]]) -> bytes:
    """An image index in deterministic bytes; `manifests` are descriptors with a platform.

    Fields stand in the order in which Go writes them, and only OCI 1.0 has them: tools that write
    an index anew when they copy it, as skopeo before 1.10 does, then keep its digest.
    """
    document = {"schemaVersion": 2, "mediaType": INDEX, "manifests": manifests}
    return json.dumps(document, separators=(",", ":"), ensure_ascii=False).encode()


def is_complete(blobs: BlobStore, digest: str) -> bool:
    """True if the manifest and everything that it refers to is in the store."""
    return _has_all_parts(blobs, digest, blobs.has)


def keep(blobs: BlobStore, digest: str) -> bool:
    """Do what `is_complete` does, for a caller that is about to refer to the manifest: it stays for
    the grace period of collections, which keep what it refers to as long as the manifest. Raises
    what BlobStore.touch raises.
    """
    return _has_all_parts(blobs, digest, blobs.touch)


def _has_all_parts(blobs: BlobStore, digest: str, has_blob: Callable[[str], bool]) -> bool:
    # Collections remove a manifest before what it refers to, so it comes first here too.
    try:
        if not has_blob(digest):
            return False
        document = read_document(blobs, digest)
    except (BlobNotFound, BlobCorrupt, InvalidManifest, InvalidDigest):
        return False
    return all(blobs.has(blob.digest) for blob in document.blobs) and all(
        _has_all_parts(blobs, child.digest, blobs.has) for child in document.children
    )

"""Referrers by their descriptors, which are noted when a manifest is pushed, so that listing many
parses none.
"""

import json
from collections.abc import Iterator
from typing import Any

from artifacts.documents import Descriptor, Document, read_document
from artifacts.errors import BlobCorrupt, BlobNotFound, InvalidDigest, InvalidManifest
from artifacts.store import Artifacts

MOST_BYTES = 64 << 10
"""Of a descriptor with its annotations."""
MOST_REFERRERS = 256
"""To one manifest, in one repository."""


def descriptor_of(document: Document, digest: str, size: int) -> dict[str, Any]:
    """The descriptor of a manifest as a list of referrers has it; raises InvalidManifest where its
    annotations are too large for a list.
    """
    descriptor = Descriptor(document.media_type, digest, size, document.annotations).to_json()
    kind = {"artifactType": document.artifact_type} if document.artifact_type else {}
    if len(json.dumps(descriptor | kind)) > MOST_BYTES:
        raise InvalidManifest(
            f"the descriptor of a manifest with a subject has more than {MOST_BYTES} bytes",
            hint="keep data in layers, not in annotations",
        )
    return descriptor | kind


def describe(store: Artifacts, digest: str) -> dict[str, Any] | None:
    """The descriptor of a referrer, as it was noted, or else by its manifest; None for one that has
    been lost since, or that is too odd to be listed: it must not hide the others.
    """
    try:
        if not store.blobs.has(digest):
            return None
        if (known := store.references.descriptor(digest)) is not None:
            return known
        document, size = read_document(store.blobs, digest), store.blobs.size(digest)
        descriptor = descriptor_of(document, digest, size)
    except (BlobNotFound, BlobCorrupt, InvalidDigest, InvalidManifest):
        return None
    store.references.note_descriptor(digest, descriptor)
    return descriptor


def referrers_of_type(
    store: Artifacts, repository: str, subject: str, *types: str
) -> Iterator[str]:
    """Digests of the manifests of these artifact types that refer to the subject, sorted."""
    for digest in store.references.referrers(repository, subject):
        descriptor = describe(store, digest)
        if descriptor is not None and descriptor.get("artifactType") in types:
            yield digest

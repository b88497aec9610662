"""Attestations of bundles, each a document in an OCI artifact whose subject is the bundle."""

from dataclasses import dataclass

from artifacts.documents import (
    EMPTY,
    EMPTY_CONTENT,
    TITLE,
    Descriptor,
    is_complete,
    manifest_bytes,
    read_document,
)
from artifacts.oci import REPOSITORY
from artifacts.store import Artifacts, BlobStore
from relaxd.provenance.envelope import ARTIFACT as PROVENANCE_ARTIFACT
from relaxd.provenance.envelope import MEDIA_TYPE as DSSE
from relaxd.provenance.statement import PREDICATE_TYPE


@dataclass(frozen=True)
class Kind:
    """One kind of attestation: the type of its artifact, and the type and file name of the
    document.
    """

    artifact_type: str
    media_type: str
    title: str
    annotations: tuple[tuple[str, str], ...] = ()


PROVENANCE = Kind(
    PROVENANCE_ARTIFACT,
    DSSE,
    "provenance.dsse.json",
    # cosign reads both from the layer, and takes the signature from the envelope.
    (("dev.cosignproject.cosign/signature", ""), ("predicateType", PREDICATE_TYPE)),
)
SBOM = Kind("application/vnd.relaxd.sbom.v1+json", "application/spdx+json", "sbom.spdx.json")


def is_attestation(blobs: BlobStore, digest: str) -> bool:
    """Whether the manifest is that of an attestation, and in the store with all its parts."""
    types = {kind.artifact_type for kind in (PROVENANCE, SBOM)}
    return is_complete(blobs, digest) and read_document(blobs, digest).artifact_type in types


def attach(
    store: Artifacts, kind: Kind, document: bytes, bundle: str, repository: str = REPOSITORY
) -> str:
    """Store the document as a referrer of the bundle of that digest; the digest of its manifest,
    equal for equal documents.
    """
    blob = store.blobs.put(document)
    layer = Descriptor(
        kind.media_type, blob.digest, blob.size, {TITLE: kind.title, **dict(kind.annotations)}
    )
    config = store.blobs.put(EMPTY_CONTENT)
    subject = read_document(store.blobs, bundle)
    manifest = manifest_bytes(
        kind.artifact_type,
        Descriptor(EMPTY, config.digest, config.size),
        [layer],
        {},
        Descriptor(subject.media_type, bundle, store.blobs.size(bundle)),
    )
    digest = store.blobs.put(manifest).digest
    store.references.refer(repository, bundle, digest)
    return digest

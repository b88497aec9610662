"""Documents about bundles, each in an OCI artifact whose subject is the bundle: attestations, and
profiles of the machines that ran it.
"""

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
from relaxd.contract.bundle import profile
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


PROFILE = Kind(profile.ARTIFACT, profile.MEDIA_TYPE, profile.FILENAME)

_MOST_READ = 32


def read_attached(
    store: Artifacts, kind: Kind, bundle: str, repository: str, largest: int
) -> dict[str, bytes]:
    """The documents of that kind that refer to the bundle in a repository, by the digest of the
    artifact; no more than a few, and none above `largest` bytes: anyone may attach more.
    """
    documents: dict[str, bytes] = {}
    for digest in store.references.referrers(repository, bundle):
        if not is_complete(store.blobs, digest):
            continue
        document = read_document(store.blobs, digest)
        if document.artifact_type != kind.artifact_type or len(document.layers) != 1:
            continue
        if document.layers[0].size <= largest and len(documents) < _MOST_READ:
            documents[digest] = store.blobs.read(document.layers[0].digest)
    return documents


def is_attestation(blobs: BlobStore, digest: str) -> bool:
    """True if the manifest is that of such a document, and in the store with all its parts."""
    types = {kind.artifact_type for kind in (PROVENANCE, SBOM, PROFILE)}
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

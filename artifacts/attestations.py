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
from artifacts.referrers import referrers_of_type
from artifacts.store import Artifacts
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
_LARGEST = 64 << 10
"""Of the manifest of one document, in bytes."""


def read_attached(
    store: Artifacts, kind: Kind, bundle: str, repository: str, largest: int
) -> dict[str, bytes]:
    """The documents of that kind that refer to the bundle in a repository, by the digest of the
    artifact; no more than a few, and none above `largest` bytes: anyone may attach more.
    """
    documents: dict[str, bytes] = {}
    for digest in referrers_of_type(store, repository, bundle, kind.artifact_type):
        if len(documents) == _MOST_READ:
            break
        if store.blobs.size(digest) > _LARGEST or not is_complete(store.blobs, digest):
            continue
        document = read_document(store.blobs, digest)
        if len(document.layers) == 1 and document.layers[0].size <= largest:
            documents[digest] = store.blobs.read(document.layers[0].digest)
    return documents


def list_attestations(store: Artifacts, bundle: str, repository: str) -> list[str]:
    """Digests of the artifacts of all kinds that refer to the bundle in a repository, and that are
    in the store with all their parts.
    """
    types = [kind.artifact_type for kind in (PROVENANCE, SBOM, PROFILE)]
    listed = referrers_of_type(store, repository, bundle, *types)
    return [digest for digest in listed if is_complete(store.blobs, digest)]


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

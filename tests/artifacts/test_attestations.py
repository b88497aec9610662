"""Documents attached to bundles."""

import pytest

from artifacts.attestations import PROVENANCE, SBOM, attach
from artifacts.cache import ActionCache
from artifacts.documents import is_complete, read_document
from artifacts.errors import BlobNotFound
from artifacts.oci import REPOSITORY, publish_bundle
from artifacts.references import References
from artifacts.store import Artifacts


@pytest.fixture
def store(blobs, records):
    return Artifacts(
        blobs, ActionCache(records, lambda digest: is_complete(blobs, digest)), References(records)
    )


@pytest.fixture
def bundle(store, tmp_path):
    (tmp_path / "manifest.json").write_text("{}")
    return publish_bundle(store.blobs, tmp_path).digest


def test_attestations_refer_to_their_bundle(store, bundle):
    digests = [attach(store, kind, b"a document", bundle) for kind in (PROVENANCE, SBOM)]
    assert store.references.referrers(REPOSITORY, bundle) == sorted(digests)
    document = read_document(store.blobs, digests[0])
    assert document.artifact_type == "application/vnd.relaxd.provenance.v1+json"
    assert document.subject.digest == bundle
    (layer,) = document.layers
    assert layer.media_type == "application/vnd.dsse.envelope.v1+json"
    assert layer.annotations["predicateType"] == "https://slsa.dev/provenance/v1"
    assert store.blobs.read(layer.digest) == b"a document"
    assert is_complete(store.blobs, digests[1])


def test_equal_documents_are_attached_once(store, bundle):
    assert attach(store, SBOM, b"one", bundle) == attach(store, SBOM, b"one", bundle)
    assert attach(store, SBOM, b"two", bundle) != attach(store, SBOM, b"one", bundle)
    assert len(store.references.referrers(REPOSITORY, bundle)) == 2


def test_there_is_nothing_to_attach_to_without_a_bundle(store):
    with pytest.raises(BlobNotFound):
        attach(store, SBOM, b"one", "sha256:" + "0" * 64)

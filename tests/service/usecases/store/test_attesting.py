"""Attestations of published bundles."""

import dataclasses
import hashlib
import json
import threading
from pathlib import Path
from typing import Any

import pytest

from artifacts.attestations import PROFILE, PROVENANCE, SBOM, attach
from artifacts.documents import read_document
from artifacts.oci import REPOSITORY
from relaxd.contract.request import CompileRequest
from relaxd.contract.states import State
from relaxd.provenance.envelope import open_envelope, signers
from relaxd.provenance.keys import read_public_keys
from relaxd.provenance.signing import signer
from service.identity import bundles_of
from service.jobs import Jobs
from service.usecases.builds import claiming
from service.usecases.store import attesting, holdings
from service.usecases.tenants import tenants
from service.workers.runner import Runner
from service.workers.scratch import Workshop
from tests.support.signing import key_pair


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    return key_pair(tmp_path / "keys")


def build_bundle(core: Any, jobs: Any, model: str) -> str:
    """The digest of a bundle that a worker of the core published."""
    workshop = Workshop(core.settings.work_dir, "signing")
    (build,) = jobs.submit(model, CompileRequest.of(dims={"n": (1, 8)})).builds
    claim = claiming.take(core, build.id, "worker")
    Runner(core, workshop, threading.Event(), lambda *_: None).run(claim)
    workshop.close()
    (done,) = jobs.get(build.job_id).builds
    assert done.state is State.SUCCEEDED, done.error
    return str(done.artifact.digest)


def attach_referrer(core: Any, bundle: str) -> dict[str, Any]:
    """The referrers of a bundle by their artifact type."""
    result = core.store.references.referrers(REPOSITORY, bundle)
    documents = [read_document(core.store.blobs, digest) for digest in result]
    assert all(document.subject.digest == bundle for document in documents)
    return {str(document.artifact_type): document for document in documents}


def content(core: Any, document: Any) -> bytes:
    (layer,) = document.layers
    return bytes(core.store.blobs.read(layer.digest))


def test_a_bundle_has_signed_provenance(core, jobs, model, keys) -> None:
    signing = core.settings.model_copy(update={"signing_key": keys / "key.pem"})
    core = dataclasses.replace(
        core, signer=lambda: signer(signing.signing_key, signing.signing_command)
    )
    bundle = build_bundle(core, jobs, model)
    document = attach_referrer(core, bundle)[PROVENANCE.artifact_type]
    assert document.layers[0].media_type == "application/vnd.dsse.envelope.v1+json"
    statement = open_envelope(content(core, document), read_public_keys(keys / "key.pub"))
    assert statement["subject"][0]["digest"] == {"sha256": bundle.removeprefix("sha256:")}
    layers = {
        layer.annotations["org.opencontainers.image.title"]: layer.digest.removeprefix("sha256:")
        for layer in read_document(core.store.blobs, bundle).layers
    }
    files = {each["name"]: each["digest"]["sha256"] for each in statement["subject"][1:]}
    assert files == layers
    built_from = statement["predicate"]["buildDefinition"]["externalParameters"]
    assert (built_from["model"], built_from["target"]) == (model, "native")
    assert statement["predicate"]["runDetails"]["builder"]["id"] == "urn:relaxd:builder"


def test_without_a_key_there_is_the_bill_of_materials_alone(core, jobs, model) -> None:
    bundle = build_bundle(core, jobs, model)
    result = attach_referrer(core, bundle)
    assert result.keys() == {SBOM.artifact_type, PROFILE.artifact_type}
    document = json.loads(content(core, result[SBOM.artifact_type]))
    assert document["spdxVersion"] == "SPDX-2.3"
    files = {
        package["name"]: package["checksums"][0]["checksumValue"]
        for package in document["packages"]
        if "checksums" in package
    }
    assert files["model.so"] == hashlib.sha256(b"a modelnative").hexdigest()
    known = {"SPDXRef-DOCUMENT"} | {package["SPDXID"] for package in document["packages"]}
    for relation in document["relationships"]:
        assert {relation["spdxElementId"], relation["relatedSpdxElement"]} <= known


def signing(core: Any, keys: Path, count: list[int] | None = None) -> Any:
    """The core of a worker that has the key; `count` gets an entry for each signature."""
    chosen = core.settings.model_copy(update={"signing_key": keys / "key.pem"})

    def counted() -> Any:
        inner = signer(chosen.signing_key, chosen.signing_command)

        def sign(message: bytes) -> bytes:
            (count if count is not None else []).append(1)
            return inner.sign(message)

        return dataclasses.replace(inner, sign=sign)

    return dataclasses.replace(core, signer=counted)


def envelopes(core: Any, bundle: str, repository: str = REPOSITORY) -> list[bytes]:
    result = core.store.references.referrers(repository, bundle)
    documents = [read_document(core.store.blobs, digest) for digest in result]
    kind = PROVENANCE.artifact_type
    return [content(core, document) for document in documents if document.artifact_type == kind]


def test_a_bundle_from_before_there_was_a_key_is_signed_at_its_next_hit(
    core, jobs, model, keys
) -> None:
    bundle = build_bundle(core, jobs, model)
    assert envelopes(core, bundle) == []
    signatures: list[int] = []
    assert build_bundle(signing(core, keys, signatures), jobs, model) == bundle
    (envelope,) = envelopes(core, bundle)
    statement = open_envelope(envelope, read_public_keys(keys / "key.pub"))
    assert statement["subject"][0]["digest"] == {"sha256": bundle.removeprefix("sha256:")}
    build_bundle(signing(core, keys, signatures), jobs, model)
    assert len(signatures) == 1


def test_a_bundle_of_an_earlier_key_is_signed_with_the_new_one_too(
    core, jobs, model, keys, tmp_path
) -> None:
    bundle = build_bundle(signing(core, keys), jobs, model)
    new = key_pair(tmp_path / "new")
    assert build_bundle(signing(core, new), jobs, model) == bundle
    result = envelopes(core, bundle)
    assert len(result) == 2
    for pair in (keys, new):
        ids = read_public_keys(pair / "key.pub")
        assert sum(ids.keys() <= set(signers(envelope)) for envelope in result) == 1


def test_what_someone_attached_is_no_signature(core, jobs, model, keys) -> None:
    bundle, other = build_bundle(core, jobs, model), core.store.blobs.put(b"another model").digest
    foreign = build_bundle(signing(core, keys), jobs, other)
    for text in (b"{}", *envelopes(core, foreign)):
        attach(core.store, PROVENANCE, text, bundle)
    build_bundle(signing(core, keys), jobs, model)
    assert len(envelopes(core, bundle)) == 3


def test_a_bundle_that_names_another_key_is_not_signed(core, jobs, model, keys) -> None:
    other = core.store.blobs.put(b"another model").digest
    (build,) = jobs.submit(model, CompileRequest.of(dims={"n": (1, 8)})).builds
    claim = claiming.take(core, build.id, "worker")
    core.store.actions.put(claim.action_key, foreign := build_bundle(core, jobs, other))
    attesting.attest_known(core, claim, foreign, signing(core, keys).signer())
    assert envelopes(core, foreign) == []


def test_the_tenant_may_read_what_was_attached_later(core, keys) -> None:
    tenants.create(core, "vision")
    jobs = Jobs(core, "vision")
    model = holdings.view(core, "vision").blobs.put(b"a model").digest
    bundle = build_bundle(core, jobs, model)
    build_bundle(signing(core, keys), jobs, model)
    result = core.store.references.referrers(bundles_of("vision"), bundle)
    assert len(result) == 3, "a profile, a bill of materials and a statement"
    assert all(holdings.view(core, "vision").blobs.has(digest) for digest in result)
    assert len(envelopes(core, bundle, bundles_of("vision"))) == 1

"""What workers attach to the bundles that they publish."""

import dataclasses
import hashlib
import json
import threading
from pathlib import Path
from typing import Any

import pytest

from artifacts.attestations import PROVENANCE, SBOM
from artifacts.documents import read_document
from artifacts.oci import REPOSITORY
from relaxd.contract.request import CompileRequest
from relaxd.contract.states import State
from relaxd.provenance.envelope import opened
from relaxd.provenance.keys import trusted
from service.adapters.signing import signer
from service.usecases import claiming
from service.workers.runner import Runner
from service.workers.scratch import Workshop
from tests.signing import key_pair


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    return key_pair(tmp_path / "keys")


def built(core: Any, jobs: Any, model: str) -> str:
    """The digest of a bundle that a worker of the core published."""
    workshop = Workshop(core.settings.work_dir, "signing")
    (build,) = jobs.submit(model, CompileRequest.of(dims={"n": (1, 8)})).builds
    claim = claiming.take(core, build.id, "worker")
    Runner(core, workshop, threading.Event(), lambda *_: None).run(claim)
    workshop.close()
    (done,) = jobs.get(build.job_id).builds
    assert done.state is State.SUCCEEDED, done.error
    return str(done.artifact.digest)


def attached(core: Any, bundle: str) -> dict[str, Any]:
    """The referrers of a bundle by their artifact type."""
    found = core.store.references.referrers(REPOSITORY, bundle)
    documents = [read_document(core.store.blobs, digest) for digest in found]
    assert all(document.subject.digest == bundle for document in documents)
    return {str(document.artifact_type): document for document in documents}


def content(core: Any, document: Any) -> bytes:
    (layer,) = document.layers
    return bytes(core.store.blobs.read(layer.digest))


def test_a_bundle_has_signed_provenance(core, jobs, model, keys) -> None:
    signing = core.settings.model_copy(update={"signing_key": keys / "key.pem"})
    core = dataclasses.replace(core, signer=lambda: signer(signing))
    bundle = built(core, jobs, model)
    document = attached(core, bundle)[PROVENANCE.artifact_type]
    assert document.layers[0].media_type == "application/vnd.dsse.envelope.v1+json"
    statement = opened(content(core, document), trusted(keys / "key.pub"))
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
    bundle = built(core, jobs, model)
    (kind,) = (found := attached(core, bundle))
    assert kind == SBOM.artifact_type
    document = json.loads(content(core, found[kind]))
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

"""Artifacts by digest: their description, and bundles as tars."""

import io
import json
import tarfile
from dataclasses import asdict

import pytest

from artifacts.attestations import PROFILE, attach
from artifacts.documents import BUNDLE, MANIFEST
from artifacts.dumps import DUMP, publish_dump
from artifacts.oci import IndexEntry, publish_bundle, publish_index
from compiler.isolation.messages import CompileJob
from relaxd.contract.bundle.profile import KernelCall, KernelTime, KernelTimes, Profile
from relaxd.contract.bundle.report import Report
from relaxd.contract.request import CompileRequest
from relaxd.errors import BundleError
from tests.service.api.registry import push_blob, serving, sha256
from tests.service.fakes import write_bundle

FILES = {
    "lib/libtvm_runtime.so": b"runtime" * 200,
    "manifest.json": b"{}",
    "model.so": b"library" + bytes(505),
    "x" * 150: b"",
}


@pytest.fixture
def client(tmp_path):
    with serving(tmp_path) as client:
        yield client


@pytest.fixture
def bundle(client, tmp_path):
    for name, data in FILES.items():
        (tmp_path / "bundle" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "bundle" / name).write_bytes(data)
    return publish_bundle(
        client.app.state.store.blobs, tmp_path / "bundle", {"org.relaxd.model": "m"}
    )


def test_a_bundle_is_described_with_links_that_work(client, bundle):
    answer = client.get(f"/v1/artifacts/{bundle.digest}")
    document = answer.json()
    assert (document["digest"], document["ref"], document["size"]) == (
        bundle.digest,
        bundle.ref,
        bundle.size,
    )
    assert (document["media_type"], document["artifact_type"], document["annotations"]) == (
        MANIFEST,
        BUNDLE,
        {"org.relaxd.model": "m"},
    )
    assert {file["name"]: client.get(file["url"]).content for file in document["files"]} == FILES
    assert all(file["size"] == len(FILES[file["name"]]) for file in document["files"])
    name, _, digest = document["ref"].partition("@")
    assert client.get(f"/v2/{name}/manifests/{digest}").status_code == 200
    assert (
        client.get(
            f"/v1/artifacts/{bundle.digest}", headers={"If-None-Match": answer.headers["etag"]}
        ).status_code
        == 304
    )


def test_an_index_is_described_by_target(client, bundle):
    index = publish_index(
        client.app.state.store.blobs,
        [IndexEntry(bundle.digest, "x86-64-v3", "x86_64", features=("avx2", "fma"))],
    )
    document = client.get(f"/v1/artifacts/{index}").json()
    assert document["files"] == []
    (target,) = document["targets"]
    assert (target["target"], target["digest"], target["features"]) == (
        "x86-64-v3",
        bundle.digest,
        ["avx2", "fma"],
    )
    assert client.get(target["url"]).json()["digest"] == bundle.digest


def test_a_bundle_comes_as_a_tar(client, bundle):
    answer = client.get(f"/v1/artifacts/{bundle.digest}", headers={"Accept": "application/x-tar"})
    assert answer.headers["Content-Type"] == "application/x-tar"
    with tarfile.open(fileobj=io.BytesIO(answer.content), mode="r:") as tar:
        assert {member.name: tar.extractfile(member).read() for member in tar} == FILES
    assert (
        client.get(
            f"/v1/artifacts/{bundle.digest}", headers={"Accept": "application/x-tar"}
        ).content
        == answer.content
    )


def test_the_dump_of_a_bundle_is_found_by_the_bundle(client, bundle, tmp_path):
    path = f"/v1/artifacts/{bundle.digest}"
    missing = client.get(path, params={"dump": 1})
    assert (missing.status_code, missing.json()["code"]) == (404, "store.no_dump")
    (tmp_path / "dump" / "kernels").mkdir(parents=True)
    (tmp_path / "dump" / "kernels" / "a.py").write_text("# a kernel")
    published = publish_dump(client.app.state.store, tmp_path / "dump", bundle.digest)
    document = client.get(path, params={"dump": 1}).json()
    assert (document["digest"], document["artifact_type"]) == (published.digest, DUMP)
    answer = client.get(path, params={"dump": 1}, headers={"Accept": "application/x-tar"})
    with tarfile.open(fileobj=io.BytesIO(answer.content), mode="r:") as tar:
        assert {member.name: tar.extractfile(member).read() for member in tar} == {
            "kernels/a.py": b"# a kernel"
        }
    listed = client.get(f"/v2/relaxd/bundles/referrers/{bundle.digest}").json()
    assert [entry["digest"] for entry in listed["manifests"]] == [published.digest]
    assert client.get(path).json()["digest"] == bundle.digest


def explain_build(client, tmp_path):
    """A bundle with the documents that a build writes."""
    folder = tmp_path / "explained"
    folder.mkdir()
    (folder / "model.onnx").write_bytes(b"a model")
    request = CompileRequest.of(dims={"n": (1, 640)}).to_json()
    model = str(folder / "model.onnx")
    write_bundle(CompileJob(model, request, "native", str(folder), "m"), folder)
    return publish_bundle(client.app.state.store.blobs, folder)


def test_a_bundle_explains_itself(client, tmp_path):
    bundle = explain_build(client, tmp_path)
    answer = client.get(f"/v1/artifacts/{bundle.digest}/report")
    report = Report.from_json(answer.json())
    assert (answer.status_code, report.digest) == (200, bundle.digest)
    assert (report.target.name, report.numerics.status) == ("native", "executed")
    assert report.sizes.files.keys() == {"model.so", "model.onnx", "numerics.json"}


def test_the_profiled_run_comes_as_a_trace(client, tmp_path):
    bundle = explain_build(client, tmp_path)
    store = client.app.state.store
    older, newer = (
        attach(store, PROFILE, profile_named(name, index), bundle.digest)
        for name, index in (("first", "2026-01-01"), ("second", "2026-01-02"))
    )
    path = f"/v1/artifacts/{bundle.digest}/trace"
    for query, kernel in ((None, "second"), (newer, "second"), (older, "first")):
        result = client.get(path, params={"profile": query} if query else {}).json()
        calls = [event["name"] for event in result["traceEvents"] if event["ph"] == "X"]
        assert calls == [kernel]
        assert result["otherData"]["digest"] == bundle.digest
    absent = client.get(path, params={"profile": sha256(b"absent")})
    assert (absent.status_code, absent.json()["code"]) == (400, BundleError.code)


def test_a_profile_without_a_timeline_has_no_trace(client, tmp_path):
    answer = client.get(f"/v1/artifacts/{explain_build(client, tmp_path).digest}/trace")
    assert answer.status_code == 400
    assert "no profile that tells when" in answer.json()["detail"]


def profile_named(kernel, index):
    call, row = KernelCall(kernel, 0.0, 5.0), KernelTime(kernel, 1, 0.005, 1.0)
    times = KernelTimes("opt", {"n": 4}, (row,), (call,))
    return json.dumps(asdict(Profile(True, measured_at=index, operators=times))).encode()


def test_what_is_no_bundle_has_no_report(client, bundle):
    for digest, status, named in (
        (sha256(b"absent"), 404, "has no blob"),
        (bundle.digest, 400, "schema version"),
    ):
        answer = client.get(f"/v1/artifacts/{digest}/report")
        assert (answer.status_code, answer.headers["Content-Type"]) == (
            status,
            "application/problem+json",
        )
        assert named in answer.json()["detail"]


def test_an_index_is_no_tar(client, bundle):
    index = publish_index(
        client.app.state.store.blobs, [IndexEntry(bundle.digest, "x86-64-v3", "x86_64")]
    )
    answer = client.get(f"/v1/artifacts/{index}", headers={"Accept": "application/x-tar"})
    assert answer.status_code == 400
    assert "x86-64-v3" in answer.json()["detail"]


def test_errors_are_problems(client):
    for digest, status, code in (
        (sha256(b"absent"), 404, "store.not_found"),
        ("nonsense", 400, "store.invalid_digest"),
        (push_blob(client, b"a layer"), 400, "store.invalid_manifest"),
    ):
        for query in ("", "?dump=1"):
            answer = client.get(f"/v1/artifacts/{digest}{query}")
            assert (answer.status_code, answer.json()["code"]) == (status, code)
        assert answer.headers["Content-Type"] == "application/problem+json"

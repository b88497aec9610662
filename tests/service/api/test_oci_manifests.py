"""Manifests, tags and referrers."""

import json

import pytest

from artifacts import referrers
from artifacts.documents import BUNDLE, INDEX, MANIFEST, MAX_MANIFEST, read_document
from service.api import oci_manifests
from tests.service.api.registry import (
    error_code,
    manifest_of,
    push_blob,
    push_bundle,
    push_manifest,
    serving,
    sha256,
)

LAYERS = {"manifest.json": b"{}", "model.so": b"library"}


@pytest.fixture(params=["local", pytest.param("s3", marks=pytest.mark.scaled)])
def client(request, tmp_path):
    store = request.getfixturevalue("s3_url") if request.param == "s3" else None
    with serving(tmp_path, store=store) as client:
        yield client


def index_of(digest, size, **more):
    entry = {"mediaType": MANIFEST, "digest": digest, "size": size}
    return json.dumps(
        {"schemaVersion": 2, "mediaType": INDEX, "manifests": [entry]} | more
    ).encode()


@pytest.mark.parametrize("reference", ["v1.0_x", None])
def test_what_is_pushed_is_pulled_byte_for_byte(client, reference):
    digest = push_bundle(client, LAYERS, reference)
    for method in ("GET", "HEAD"):
        answer = client.request(method, f"/v2/relaxd/test/manifests/{reference or digest}")
        data = manifest_of(LAYERS)
        assert (answer.status_code, answer.content) == (200, data if method == "GET" else b"")
        assert answer.headers["Content-Type"] == MANIFEST
        assert (answer.headers["Docker-Content-Digest"], answer.headers["etag"]) == (
            digest,
            f'"{digest}"',
        )
        assert answer.headers["Content-Length"] == str(len(data))
        known = client.request(
            method,
            f"/v2/relaxd/test/manifests/{reference or digest}",
            headers={"If-None-Match": f'"{digest}"'},
        )
        assert known.status_code == 304


def test_a_push_says_where_the_manifest_is(client):
    push_bundle(client, LAYERS)
    answer = push_manifest(client, manifest_of(LAYERS), "v1")
    digest = sha256(manifest_of(LAYERS))
    assert (answer.headers["Location"], answer.headers["Docker-Content-Digest"]) == (
        f"/v2/relaxd/test/manifests/{digest}",
        digest,
    )


def test_a_tag_moves(client):
    push_bundle(client, LAYERS, "latest")
    newer = push_bundle(client, {"model.so": b"newer"}, "latest")
    answer = client.get("/v2/relaxd/test/manifests/latest")
    assert (answer.headers["Docker-Content-Digest"], answer.headers["Cache-Control"]) == (
        newer,
        "no-cache",
    )


def test_a_manifest_is_refused_until_its_blobs_are_here(client):
    manifest = manifest_of(LAYERS)
    answer = push_manifest(client, manifest, "v1")
    assert (answer.status_code, error_code(answer)) == (400, "MANIFEST_BLOB_UNKNOWN")
    assert client.get("/v2/relaxd/test/manifests/v1").status_code == 404
    index = index_of(sha256(manifest), len(manifest))
    assert error_code(push_manifest(client, index)) == "MANIFEST_BLOB_UNKNOWN"
    push_bundle(client, LAYERS)
    assert push_manifest(client, index, "v1").status_code == 201
    assert client.get("/v2/relaxd/test/manifests/v1").headers["Content-Type"] == INDEX


def test_a_manifest_that_belies_a_size_is_refused(client):
    manifest = json.loads(manifest_of(LAYERS))
    push_bundle(client, LAYERS)
    manifest["layers"][0]["size"] = 9
    answer = push_manifest(client, json.dumps(manifest).encode())
    assert (answer.status_code, error_code(answer)) == (400, "SIZE_INVALID")


@pytest.mark.parametrize(
    ("data", "reference", "content_type", "status", "code"),
    [
        (b"not json", "v1", MANIFEST, 400, "MANIFEST_INVALID"),
        (b"{}", "v1", MANIFEST, 400, "MANIFEST_INVALID"),
        (manifest_of(LAYERS), "v1", INDEX, 400, "MANIFEST_INVALID"),
        (manifest_of(LAYERS), "-tag", MANIFEST, 400, "MANIFEST_INVALID"),
        (manifest_of(LAYERS), "x" * 129, MANIFEST, 400, "MANIFEST_INVALID"),
        (manifest_of(LAYERS), sha256(b"other"), MANIFEST, 400, "DIGEST_INVALID"),
        (manifest_of(LAYERS), "sha256:short", MANIFEST, 400, "DIGEST_INVALID"),
        (b" " * (MAX_MANIFEST + 1), "v1", MANIFEST, 413, "SIZE_INVALID"),
    ],
    ids=[
        "not-json",
        "empty",
        "other-type",
        "bad-tag",
        "long-tag",
        "other-digest",
        "bad-digest",
        "huge",
    ],
)
def test_a_bad_push_is_an_oci_error(client, data, reference, content_type, status, code):
    push_bundle(client, LAYERS)
    answer = client.put(
        f"/v2/relaxd/test/manifests/{reference}",
        content=data,
        headers={"Content-Type": content_type},
    )
    assert (answer.status_code, error_code(answer)) == (status, code)
    assert client.get("/v2/relaxd/test/tags/list").json()["tags"] == []


def test_what_is_no_manifest_is_unknown(client):
    layer = push_blob(client, b"a layer")
    for reference in ("absent", sha256(b"absent"), layer):
        answer = client.get(f"/v2/relaxd/test/manifests/{reference}")
        assert (answer.status_code, error_code(answer)) == (404, "MANIFEST_UNKNOWN")


def test_tags_are_listed_in_pages(client):
    for tag in ("b", "a", "c", "B"):
        push_bundle(client, LAYERS, tag)
    assert client.get("/v2/relaxd/test/tags/list").json() == {
        "name": "relaxd/test",
        "tags": ["B", "a", "b", "c"],
    }
    page = client.get("/v2/relaxd/test/tags/list", params={"n": 3})
    assert page.json()["tags"] == ["B", "a", "b"]
    rest = client.get(page.headers["Link"].split(">")[0].removeprefix("<"))
    assert (rest.json()["tags"], "Link" in rest.headers) == (["c"], False)
    assert client.get("/v2/relaxd/test/tags/list", params={"n": 0}).json()["tags"] == []
    assert client.get("/v2/relaxd/test/tags/list", params={"last": "a"}).json()["tags"] == [
        "b",
        "c",
    ]
    assert client.get("/v2/relaxd/other/tags/list").json()["tags"] == []


def test_referrers_are_listed_and_filtered(client):
    subject = push_bundle(client, LAYERS)
    descriptor = {"mediaType": MANIFEST, "digest": subject, "size": len(manifest_of(LAYERS))}
    answer = client.get(f"/v2/relaxd/test/referrers/{subject}")
    assert (answer.status_code, answer.headers["Content-Type"]) == (200, INDEX)
    assert answer.json() == {"schemaVersion": 2, "mediaType": INDEX, "manifests": []}

    push_blob(client, b"signature")
    signature = manifest_of(
        {"signature": b"signature"},
        subject=descriptor,
        artifactType="application/vnd.test.sig",
        annotations={"k": "v"},
    )
    assert push_manifest(client, signature).headers["OCI-Subject"] == subject
    other = push_bundle(client, {"note": b"note"}, subject=descriptor)
    results = {
        entry["digest"]: entry
        for entry in client.get(f"/v2/relaxd/test/referrers/{subject}").json()["manifests"]
    }
    assert results.keys() == {sha256(signature), other}
    assert results[sha256(signature)] == {
        "mediaType": MANIFEST,
        "artifactType": "application/vnd.test.sig",
        "digest": sha256(signature),
        "size": len(signature),
        "annotations": {"k": "v"},
    }
    filtered = client.get(f"/v2/relaxd/test/referrers/{subject}", params={"artifactType": BUNDLE})
    assert [entry["digest"] for entry in filtered.json()["manifests"]] == [other]
    assert filtered.headers["OCI-Filters-Applied"] == "artifactType"


def test_a_subject_need_not_be_here_yet(client):
    push_bundle(client, LAYERS)
    subject = {"mediaType": MANIFEST, "digest": sha256(b"later"), "size": 5}
    assert push_manifest(client, manifest_of(LAYERS, subject=subject)).status_code == 201
    assert len(client.get(f"/v2/relaxd/test/referrers/{sha256(b'later')}").json()["manifests"]) == 1


def test_referrers_of_nonsense_are_refused(client):
    assert error_code(client.get("/v2/relaxd/test/referrers/nonsense")) == "DIGEST_INVALID"


def test_the_tags_of_jobs_are_the_services_own(client):
    """Otherwise whoever may push could put a bundle in the place of a job's."""
    push_bundle(client, {"model.so": b"mine"}, name="relaxd/bundles")
    manifest = manifest_of({"model.so": b"mine"})
    answer = push_manifest(client, manifest, "job-0123456789abcdef", "relaxd/bundles")
    assert (answer.status_code, error_code(answer)) == (403, "DENIED")
    for reference, name in ((None, "relaxd/bundles"), ("v1", "relaxd/bundles")):
        assert push_manifest(client, manifest, reference, name).status_code == 201
    push_bundle(client, {"model.so": b"mine"}, "job-0123456789abcdef", name="relaxd/own")


def test_a_manifest_with_a_text_that_cannot_be_sent_is_refused(client):
    push_bundle(client, LAYERS)
    manifest = manifest_of(LAYERS, annotations={"note": "\ud800"})
    answer = push_manifest(client, manifest)
    assert (answer.status_code, error_code(answer)) == (400, "MANIFEST_INVALID")


def test_one_odd_referrer_does_not_hide_the_others(client):
    """It may have been pushed to an earlier release, or be damaged."""
    subject = push_bundle(client, LAYERS)
    referring = {"mediaType": MANIFEST, "digest": subject, "size": len(manifest_of(LAYERS))}
    good = push_bundle(client, {"sbom": b"1"}, subject=referring)
    store = client.app.state.store
    odd = manifest_of({"sbom": b"2"}, subject=referring, annotations={"note": "\ud800"})
    store.references.refer("relaxd/test", subject, store.blobs.put(odd).digest)
    store.references.refer("relaxd/test", subject, store.blobs.put(b"no manifest").digest)
    listed = client.get(f"/v2/relaxd/test/referrers/{subject}").json()["manifests"]
    assert [entry["digest"] for entry in listed] == [good]


def test_a_manifest_nested_too_deeply_is_refused(client):
    manifest = manifest_of(LAYERS)[:-1] + b', "deep": ' + b"[" * 100_000 + b"]" * 100_000 + b"}"
    kind = {"Content-Type": MANIFEST}
    answer = client.put("/v2/relaxd/test/manifests/v1", content=manifest, headers=kind)
    assert (answer.status_code, error_code(answer)) == (400, "MANIFEST_INVALID")


def test_a_tag_that_holds_no_digest_is_no_tag(client):
    push_bundle(client, LAYERS, "v1")
    client.app.state.store.references._records.set("references/relaxd/test/_tags/v1", "nonsense")
    answer = client.get("/v2/relaxd/test/manifests/v1")
    assert (answer.status_code, error_code(answer)) == (404, "MANIFEST_UNKNOWN")


def refer(client, subject, number, **more):
    """Push a manifest that refers to the subject; its digest."""
    referring = {"mediaType": MANIFEST, "digest": subject, "size": len(manifest_of(LAYERS))}
    return push_bundle(client, {"note": b"%d" % number}, subject=referring, **more)


def test_referrers_come_in_pages_and_none_is_parsed_for_them(client, monkeypatch):
    subject = push_bundle(client, LAYERS)
    digests = [refer(client, subject, number) for number in range(5)]

    def fail(*arguments):
        raise AssertionError("a manifest was parsed")

    monkeypatch.setattr(referrers, "read_document", fail)
    monkeypatch.setattr(oci_manifests, "PAGE", 2)
    where, listed, pages = f"/v2/relaxd/test/referrers/{subject}?artifactType={BUNDLE}", [], 0
    while where:
        answer = client.get(where)
        assert answer.headers["OCI-Filters-Applied"] == "artifactType"
        listed += [entry["digest"] for entry in answer.json()["manifests"]]
        where, pages = answer.links.get("next", {}).get("url"), pages + 1
    assert (listed, pages) == (sorted(digests), 3)
    monkeypatch.setattr(oci_manifests, "PAGE_BYTES", 0)
    answer = client.get(f"/v2/relaxd/test/referrers/{subject}")
    assert len(answer.json()["manifests"]) == 1, "large descriptors make short pages"
    assert "next" in answer.links


def test_what_an_earlier_release_noted_is_described_once(client, monkeypatch):
    subject = push_bundle(client, LAYERS)
    digest = refer(client, subject, 1)
    client.app.state.store.references.forget_descriptor(digest)
    where, parsed = f"/v2/relaxd/test/referrers/{subject}", []
    usual = read_document
    monkeypatch.setattr(
        referrers, "read_document", lambda *read: parsed.append(read) or usual(*read)
    )
    for _ in range(3):
        assert [each["digest"] for each in client.get(where).json()["manifests"]] == [digest]
    assert len(parsed) == 1


def test_referrers_are_limited_in_number_and_size(client, monkeypatch):
    monkeypatch.setattr(oci_manifests, "MOST_REFERRERS", 2)
    subject = push_bundle(client, LAYERS)
    refer(client, subject, 1)
    second = refer(client, subject, 2)
    referring = {"mediaType": MANIFEST, "digest": subject, "size": len(manifest_of(LAYERS))}
    push_blob(client, b"3")
    third = manifest_of({"note": b"3"}, subject=referring)
    answer = push_manifest(client, third)
    assert (answer.status_code, error_code(answer)) == (403, "DENIED")
    assert refer(client, subject, 2) == second, "one that is there may be pushed again"
    assert push_manifest(client, third, name="relaxd/other").status_code == 201
    wordy = manifest_of({"note": b"3"}, subject=referring, annotations={"note": "x" * (70 << 10)})
    answer = push_manifest(client, wordy, name="relaxd/other")
    assert (answer.status_code, error_code(answer)) == (400, "MANIFEST_INVALID")

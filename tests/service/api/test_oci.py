"""Blobs down: ranges, conditional requests, and what happens to corrupt ones."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from artifacts.errors import BlobCorrupt
from artifacts.store import CHUNK, hex_of
from tests.service.api.registry import error_code, push_blob, serving, sha256

DATA = bytes(range(200))


@pytest.fixture
def client(tmp_path):
    with serving(tmp_path) as client:
        yield client


def corrupt(folder, digest, data):
    path = folder / "store" / "blobs" / "sha256" / hex_of(digest)[:2] / hex_of(digest)
    path.chmod(0o644)
    path.write_bytes(data)


@pytest.mark.parametrize("path", ["/v2/", "/v2"])
def test_the_registry_says_that_it_is_one(client, path):
    answer = client.get(path, follow_redirects=False)
    assert (answer.status_code, answer.headers["Docker-Distribution-API-Version"]) == (
        200,
        "registry/2.0",
    )


def test_a_blob_comes_with_its_identity(client):
    digest = push_blob(client, DATA)
    for method in ("GET", "HEAD"):
        answer = client.request(method, f"/v2/relaxd/test/blobs/{digest}")
        assert answer.status_code == 200
        assert answer.content == (DATA if method == "GET" else b"")
        headers = {
            "etag": f'"{digest}"',
            "docker-content-digest": digest,
            "accept-ranges": "bytes",
            "content-length": "200",
        }
        assert headers.items() <= dict(answer.headers).items()


def test_an_empty_blob_comes_too(client):
    answer = client.get(f"/v2/relaxd/test/blobs/{push_blob(client, b'')}")
    assert (answer.status_code, answer.content, answer.headers["content-length"]) == (200, b"", "0")


@pytest.mark.parametrize("method", ["GET", "HEAD"])
@pytest.mark.parametrize("tags", ['"{}"', 'W/"{}"', '"other", "{}"', "*"])
def test_content_that_the_client_has_is_not_sent(client, method, tags):
    digest = push_blob(client, DATA)
    answer = client.request(
        method, f"/v2/relaxd/test/blobs/{digest}", headers={"If-None-Match": tags.format(digest)}
    )
    assert (answer.status_code, answer.content, answer.headers["etag"]) == (304, b"", f'"{digest}"')


def test_another_tag_than_the_content_s_is_no_match(client):
    digest = push_blob(client, DATA)
    assert (
        client.get(
            f"/v2/relaxd/test/blobs/{digest}", headers={"If-None-Match": f'"{sha256(b"other")}"'}
        ).content
        == DATA
    )


@pytest.mark.parametrize(
    ("asked", "start", "end"),
    [
        ("0-0", 0, 1),
        ("0-199", 0, 200),
        ("10-19", 10, 20),
        ("190-", 190, 200),
        ("-5", 195, 200),
        ("-999", 0, 200),
        ("150-999", 150, 200),
    ],
)
def test_a_range_is_that_part(client, asked, start, end):
    digest = push_blob(client, DATA)
    answer = client.get(f"/v2/relaxd/test/blobs/{digest}", headers={"Range": f"bytes={asked}"})
    assert (answer.status_code, answer.content) == (206, DATA[start:end])
    assert answer.headers["content-range"] == f"bytes {start}-{end - 1}/200"
    assert answer.headers["content-length"] == str(end - start)


@pytest.mark.parametrize("asked", ["200-", "200-300", "-0"])
def test_a_range_past_the_end_is_refused(client, asked):
    answer = client.get(
        f"/v2/relaxd/test/blobs/{push_blob(client, DATA)}", headers={"Range": f"bytes={asked}"}
    )
    assert (answer.status_code, answer.headers["content-range"]) == (416, "bytes */200")


@pytest.mark.parametrize(
    "asked", ["bytes=5-4", "bytes=0-1,3-4", "lines=1-2", "bytes=a-b", "bytes=-", "bytes"]
)
def test_a_range_that_cannot_be_read_is_ignored(client, asked):
    answer = client.get(
        f"/v2/relaxd/test/blobs/{push_blob(client, DATA)}", headers={"Range": asked}
    )
    assert (answer.status_code, answer.content) == (200, DATA)


def test_if_range_holds_only_for_the_same_content(client):
    digest = push_blob(client, DATA)
    for tag, status in ((f'"{digest}"', 206), (f'W/"{digest}"', 200), ('"other"', 200)):
        answer = client.get(
            f"/v2/relaxd/test/blobs/{digest}", headers={"Range": "bytes=0-1", "If-Range": tag}
        )
        assert answer.status_code == status


@settings(
    max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.binary(max_size=300), cuts=st.lists(st.integers(0, 300), max_size=3))
def test_a_download_that_goes_on_where_it_broke_gets_everything(client, data, cuts):
    digest, got = push_blob(client, data), b""
    for cut in [*sorted(cuts), len(data)]:
        if len(got) < min(cut, len(data)):
            got += client.get(
                f"/v2/relaxd/test/blobs/{digest}", headers={"Range": f"bytes={len(got)}-{cut - 1}"}
            ).content
    assert got == data


@pytest.mark.parametrize("method", ["GET", "HEAD"])
@pytest.mark.parametrize(
    ("path", "status", "code"),
    [
        (f"/v2/relaxd/test/blobs/{sha256(b'absent')}", 404, "BLOB_UNKNOWN"),
        ("/v2/relaxd/test/blobs/sha256:short", 400, "DIGEST_INVALID"),
        (f"/v2/library/ubuntu/blobs/{sha256(b'absent')}", 400, "NAME_INVALID"),
        (f"/v2/relaxd/Upper/blobs/{sha256(b'absent')}", 400, "NAME_INVALID"),
        (f"/v2/relaxd/%2e%2e/x/blobs/{sha256(b'absent')}", 400, "NAME_INVALID"),
        (f"/v2/relaxd/{'x' * 300}/blobs/{sha256(b'absent')}", 400, "NAME_INVALID"),
    ],
)
def test_what_is_not_there_is_an_oci_error(client, method, path, status, code):
    answer = client.request(method, path)
    assert answer.status_code == status
    assert method == "HEAD" or error_code(answer) == code


def test_nothing_is_deleted_over_http(client):
    digest = push_blob(client, DATA)
    answer = client.delete(f"/v2/relaxd/test/blobs/{digest}")
    assert (answer.status_code, error_code(answer)) == (405, "UNSUPPORTED")
    assert client.head(f"/v2/relaxd/test/blobs/{digest}").status_code == 200


@pytest.mark.parametrize("headers", [{}, {"Range": "bytes=3-4"}], ids=["whole", "part"])
def test_a_corrupt_blob_is_refused_then_missing_then_pushed_again(client, tmp_path, headers):
    digest = push_blob(client, DATA)
    corrupt(tmp_path, digest, DATA[:-1] + b"!")
    answer = client.get(f"/v2/relaxd/test/blobs/{digest}", headers=headers)
    assert (answer.status_code, error_code(answer)) == (404, "BLOB_UNKNOWN")
    assert "quarantined" in answer.text
    assert client.head(f"/v2/relaxd/test/blobs/{digest}").status_code == 404
    push_blob(client, DATA)
    assert client.get(f"/v2/relaxd/test/blobs/{digest}").content == DATA


def test_a_large_corrupt_blob_breaks_the_connection_before_its_end(client, tmp_path):
    data = b"z" * (3 * CHUNK)
    digest = push_blob(client, data)
    corrupt(tmp_path, digest, data[:-1] + b"!")
    received = []
    with (
        pytest.raises((BlobCorrupt, RuntimeError)),
        client.stream("GET", f"/v2/relaxd/test/blobs/{digest}") as answer,
    ):
        received.extend(answer.iter_raw())
    assert sum(map(len, received)) < len(data)
    assert client.head(f"/v2/relaxd/test/blobs/{digest}").status_code == 404

"""Blobs up: every way that the distribution spec has, and what can go wrong with each."""

import asyncio
import fcntl
import itertools
import os
import socket
import time
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from starlette.requests import ClientDisconnect, Request

from artifacts.errors import StoreFull
from artifacts.store import CHUNK
from relaxd.http.bodies import ReadAhead
from service.api import access, oci_sessions, oci_uploads
from service.api.oci_errors import RegistryError
from service.api.oci_sessions import Bounds, Sessions
from service.db.engine import Database
from tests.e2e.deployment import until
from tests.service.api.registry import Unlimited, error_code, push_blob, serving, sha256
from tests.service.live import Live, live

DATA = bytes(range(250)) * 4
UPLOADS = "/v2/relaxd/test/blobs/uploads/"


@pytest.fixture(params=["local", pytest.param("s3", marks=pytest.mark.scaled)])
def client(request, tmp_path):
    store = request.getfixturevalue("s3_url") if request.param == "s3" else None
    with serving(tmp_path, store=store) as client:
        yield client


def start(client):
    answer = client.post(UPLOADS)
    assert (answer.status_code, answer.headers["Range"], answer.headers.get("content-length")) == (
        202,
        "0-0",
        "0",
    )
    return answer.headers["Location"]


def patch(client, location, data, first=None):
    headers = {} if first is None else {"Content-Range": f"{first}-{first + len(data) - 1}"}
    return client.patch(location, content=data, headers=headers)


def content(client, digest):
    answer = client.get(f"/v2/relaxd/test/blobs/{digest}")
    return answer.content if answer.status_code == 200 else None


@pytest.mark.parametrize("path", [UPLOADS, UPLOADS.rstrip("/")])
def test_in_one_request(client, path, tmp_path):
    answer = client.post(path, params={"digest": sha256(DATA)}, content=DATA)
    assert (answer.status_code, answer.headers["Docker-Content-Digest"]) == (201, sha256(DATA))
    assert client.get(answer.headers["Location"]).content == DATA
    assert list((tmp_path / "uploads").iterdir()) == []


def test_in_two_requests(client):
    answer = client.put(start(client), params={"digest": sha256(DATA)}, content=DATA)
    assert answer.status_code == 201
    assert client.get(answer.headers["Location"]).content == DATA


def test_streamed_without_a_length(client):
    location = start(client)
    answer = client.patch(location, content=iter([DATA[:300], DATA[300:]]))
    assert (answer.status_code, answer.headers["Range"]) == (202, f"0-{len(DATA) - 1}")
    assert (
        client.put(answer.headers["Location"], params={"digest": sha256(DATA)}).status_code == 201
    )
    assert content(client, sha256(DATA)) == DATA


@settings(
    max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    data=st.binary(min_size=1, max_size=500),
    cuts=st.lists(st.integers(1, 499), max_size=4, unique=True),
    last=st.booleans(),
)
def test_in_chunks_of_any_size(client, data, cuts, last):
    edges = [0, *(cut for cut in sorted(cuts) if cut < len(data)), len(data)]
    location = start(client)
    for first, end in itertools.pairwise(edges[:-1]):
        answer = patch(client, location, data[first:end], first)
        assert (answer.status_code, answer.headers["Range"]) == (202, f"0-{end - 1}")
    rest, headers = data[edges[-2] :], {"Content-Range": f"{edges[-2]}-{len(data) - 1}"}
    if not last:
        assert client.patch(location, content=rest, headers=headers).status_code == 202
        rest, headers = b"", {}
    assert (
        client.put(
            location, params={"digest": sha256(data)}, content=rest, headers=headers
        ).status_code
        == 201
    )
    assert content(client, sha256(data)) == data


def test_an_upload_goes_on_after_a_restart(tmp_path):
    with serving(tmp_path) as client:
        location = start(client)
        patch(client, location, DATA[:400], 0)
    with serving(tmp_path) as client:
        answer = client.get(location)
        assert (answer.status_code, answer.headers["Range"], answer.headers["Location"]) == (
            204,
            "0-399",
            location,
        )
        assert patch(client, location, DATA[400:], 400).status_code == 202
        assert client.put(location, params={"digest": sha256(DATA)}).status_code == 201
        assert content(client, sha256(DATA)) == DATA


@pytest.mark.parametrize("first", [0, 99, 101, 500])
def test_a_chunk_out_of_order_says_where_to_go_on(client, first):
    location = start(client)
    patch(client, location, DATA[:100], 0)
    for answer in (
        patch(client, location, DATA[first : first + 10], first),
        client.put(
            location,
            params={"digest": sha256(DATA)},
            content=b"x",
            headers={"Content-Range": f"{first}-{first}"},
        ),
    ):
        assert (answer.status_code, answer.headers["Range"], answer.headers["Location"]) == (
            416,
            "0-99",
            location,
        )
        assert error_code(answer) == "BLOB_UPLOAD_INVALID"
    patch(client, location, DATA[100:], 100)
    assert client.put(location, params={"digest": sha256(DATA)}).status_code == 201


@pytest.mark.parametrize("announced", ["100-104", "100-120"])
def test_a_chunk_of_another_length_than_announced_leaves_the_upload_as_it_was(client, announced):
    location = start(client)
    patch(client, location, DATA[:100], 0)
    answer = client.patch(location, content=DATA[100:110], headers={"Content-Range": announced})
    assert (answer.status_code, error_code(answer)) == (400, "SIZE_INVALID")
    assert client.get(location).headers["Range"] == "0-99"


@pytest.mark.parametrize("header", ["", "bytes", "5", "5-4", "a-b", "-1-2"])
def test_a_malformed_content_range_is_refused(client, header):
    answer = client.patch(start(client), content=b"x", headers={"Content-Range": header})
    assert (answer.status_code, error_code(answer)) == (400, "BLOB_UPLOAD_INVALID")


def test_a_wrong_digest_stores_nothing_and_ends_the_upload(client, tmp_path):
    location = start(client)
    patch(client, location, DATA)
    answer = client.put(location, params={"digest": sha256(b"other")})
    assert (answer.status_code, error_code(answer)) == (400, "DIGEST_INVALID")
    assert sha256(DATA) in answer.text
    assert client.get(location).status_code == 404
    assert content(client, sha256(DATA)) is None
    answer = client.post(UPLOADS, params={"digest": sha256(b"other")}, content=DATA)
    assert (answer.status_code, error_code(answer)) == (400, "DIGEST_INVALID")
    assert list((tmp_path / "uploads").iterdir()) == []


@pytest.mark.parametrize("params", [{}, {"digest": ""}, {"digest": "sha512:" + "0" * 128}])
def test_a_malformed_digest_leaves_the_upload_to_be_finished(client, params):
    location = start(client)
    patch(client, location, DATA)
    answer = client.put(location, params=params)
    assert (answer.status_code, error_code(answer)) == (400, "DIGEST_INVALID")
    assert client.put(location, params={"digest": sha256(DATA)}).status_code == 201


def test_finishing_again_is_fine(client):
    location = start(client)
    for _ in range(2):
        assert (
            client.put(location, params={"digest": sha256(DATA)}, content=DATA).status_code == 201
        )


@pytest.mark.parametrize("identifier", ["0" * 32, "nonsense", "%2e%2e"])
@pytest.mark.parametrize("method", ["GET", "PATCH", "PUT", "DELETE"])
def test_an_unknown_upload_is_an_oci_error(client, identifier, method):
    answer = client.request(method, UPLOADS + identifier, params={"digest": sha256(b"absent")})
    assert (answer.status_code, error_code(answer)) == (404, "BLOB_UPLOAD_UNKNOWN")


def test_a_cancelled_upload_is_gone(client, tmp_path):
    location = start(client)
    assert client.delete(location).status_code == 204
    assert client.get(location).status_code == 404
    assert list((tmp_path / "uploads").iterdir()) == []


def test_a_blob_is_mounted_only_if_it_is_here(client):
    digest = push_blob(client, DATA, "relaxd/one")
    answer = client.post(
        "/v2/relaxd/other/blobs/uploads/", params={"mount": digest, "from": "relaxd/one"}
    )
    assert (answer.status_code, answer.headers["Location"]) == (
        201,
        f"/v2/relaxd/other/blobs/{digest}",
    )
    assert client.get(answer.headers["Location"]).content == DATA
    answer = client.post(
        "/v2/relaxd/other/blobs/uploads/", params={"mount": sha256(b"absent"), "from": "relaxd/one"}
    )
    assert answer.status_code == 202
    assert (
        client.put(
            answer.headers["Location"], params={"digest": sha256(b"absent")}, content=b"absent"
        ).status_code
        == 201
    )


def test_a_blob_too_large_is_refused(tmp_path):
    with serving(tmp_path, max_bytes=1000) as client:
        location = start(client)
        assert patch(client, location, DATA[:600]).status_code == 202
        answer = patch(client, location, DATA[:600])
        assert (answer.status_code, error_code(answer)) == (413, "SIZE_INVALID")
        assert client.get(location).headers["Range"] == "0-599"
        assert patch(client, location, DATA[600:1000]).status_code == 202
        assert client.put(location, params={"digest": sha256(DATA)}).status_code == 201


def test_two_writers_of_one_upload_do_not_mix(client, tmp_path):
    location = start(client)
    with open(tmp_path / "uploads" / location.rpartition("/")[2], "rb") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        answer = patch(client, location, DATA)
        assert (answer.status_code, error_code(answer), answer.headers["Retry-After"]) == (
            429,
            "TOOMANYREQUESTS",
            "1",
        )
    assert patch(client, location, DATA).status_code == 202
    assert client.get(location).headers["Range"] == f"0-{len(DATA) - 1}"


def test_a_broken_connection_leaves_what_had_arrived(tmp_path):
    sessions = Sessions(tmp_path, Bounds(10_000), Unlimited())
    upload = sessions.start().identifier

    async def breaks():
        yield b"arrived"
        raise ClientDisconnect

    async def send():
        async with sessions.writing(upload) as file:
            await sessions.append(file, breaks(), length=100)

    with pytest.raises(RegistryError, match="broke after 7 bytes"):
        asyncio.run(send())
    assert sessions.size(upload) == len(b"arrived")


def test_forgotten_uploads_are_swept(client, tmp_path, monkeypatch):
    monkeypatch.setattr(oci_sessions, "SWEEP_S", 0)
    forgotten, alive = start(client), start(client)
    long_ago = time.time() - Bounds(0).idle_s - 60
    os.utime(tmp_path / "uploads" / forgotten.rpartition("/")[2], (long_ago, long_ago))
    start(client)
    assert client.get(forgotten).status_code == 404
    assert client.get(alive).status_code == 204


def test_a_full_disk_is_a_507_and_leaves_the_upload_as_it_was(client, tmp_path, monkeypatch):
    upload = start(client)
    assert client.patch(upload, content=b"kept").status_code == 202

    def fill(file, data):
        file.write(data[:3])
        raise StoreFull("cannot keep the upload")

    monkeypatch.setattr(oci_sessions, "_write_all", fill)
    answer = client.patch(upload, content=b"too much")
    assert (answer.status_code, error_code(answer)) == (507, "UNAVAILABLE")
    assert client.get(upload).headers["Range"] == "0-3"
    client.delete(upload)
    large = bytes(CHUNK + 1)
    assert client.post(f"{UPLOADS}?digest={sha256(large)}", content=large).status_code == 507
    assert list((tmp_path / "uploads").iterdir()) == []


def test_a_device_without_room_is_told_by_the_system(client, tmp_path):
    upload = start(client)
    path = tmp_path / "uploads" / upload.rpartition("/")[2]
    path.unlink()
    path.symlink_to("/dev/full")
    assert client.patch(upload, content=b"x").status_code == 507


@pytest.mark.parametrize("digest", [sha256(b"other"), "sha256:" + "0" * 64])
def test_an_upload_in_one_request_leaves_nothing_when_it_fails(client, tmp_path, digest):
    assert client.post(f"{UPLOADS}?digest={digest}", content=b"x").status_code == 400
    assert list((tmp_path / "uploads").iterdir()) == []


@pytest.fixture
def roomy(tmp_path) -> Iterator[Live]:
    with live(tmp_path) as running:
        yield running


def begin_upload(api: Live, size: int) -> socket.socket:
    """A connection on which so many of 10 MB have been sent."""
    address = urlsplit(api.url)
    head = (
        f"POST {UPLOADS}?digest={sha256(b'x')} HTTP/1.1\r\n"
        "Host: localhost\r\nContent-Length: 10000000\r\n\r\n"
    )
    sender = socket.create_connection((str(address.hostname), int(address.port or 0)))
    sender.sendall(head.encode() + bytes(size))
    return sender


def test_an_aborted_upload_in_one_request_leaves_nothing(roomy: Live) -> None:
    folder = roomy.services.settings.data_dir / "uploads"
    with begin_upload(roomy, 2 * CHUNK):
        until(lambda: list(folder.iterdir()), 20, "the upload")
    until(lambda: not list(folder.iterdir()), 20, "its end")


def test_a_client_that_goes_away_early_costs_no_write(roomy: Live, monkeypatch) -> None:
    answered, write = [], Database.write
    monkeypatch.setattr(
        access.RequestMetrics, "note", lambda self, *arguments: answered.append(arguments[2])
    )
    writes = []
    monkeypatch.setattr(Database, "write", lambda db: writes.append(db) or write(db))
    with begin_upload(roomy, CHUNK // 2):
        pass
    until(lambda: answered, 20, "the end of the request")
    assert (answered, writes) == ([499], [])


def test_a_blob_that_came_whole_begins_no_upload(client, monkeypatch):
    monkeypatch.setattr(Sessions, "start", None)
    assert client.post(f"{UPLOADS}?digest={sha256(DATA)}", content=DATA).status_code == 201
    assert client.get(f"/v2/relaxd/x/blobs/{sha256(DATA)}").content == DATA


def test_memory_for_beginnings_is_limited(client, monkeypatch):
    monkeypatch.setattr(oci_uploads, "MOST_AHEAD", 0)
    assert client.post(f"{UPLOADS}?digest={sha256(DATA)}", content=DATA).status_code == 201


async def read_beginnings(parts: list[bytes], limit: int, most: int) -> list[Any]:
    """Read the beginnings of two equal bodies, one after the other."""
    results = []
    ahead = ReadAhead(most)
    for _ in range(2):
        left = iter([*parts, b""])

        async def receive(left: Iterator[bytes] = left) -> dict[str, Any]:
            part = next(left)
            return {"type": "http.request", "body": part, "more_body": part != b""}

        request = Request({"type": "http", "headers": []}, receive)
        beginning, rest = await ahead.read(request, limit)
        results.append((beginning, rest and b"".join([part async for part in rest])))
    return results


@pytest.mark.parametrize(
    ("limit", "most", "expected"),
    [(6, 99, (b"abcdef", None)), (5, 99, (b"abcdef", b"")), (2, 99, (b"abc", b"def")),
     (99, 3, (b"abcdef", b"")), (99, 2, (b"abc", b"def"))],
)  # fmt: skip
def test_beginnings_are_read_within_both_limits(limit, most, expected):
    assert asyncio.run(read_beginnings([b"abc", b"def"], limit, most)) == [expected, expected]

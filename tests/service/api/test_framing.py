"""Requests with two ends, or none."""

import socket
from urllib.parse import urlsplit

import pytest

from tests.service.live import Live


def exchange(api: Live, sent: bytes) -> bytes:
    """Return what comes until the service closes the connection."""
    address = urlsplit(api.url)
    received = b""
    with socket.create_connection((str(address.hostname), int(address.port or 0))) as client:
        client.settimeout(20)
        client.sendall(sent)
        while part := client.recv(1 << 16):
            received += part
    return received


@pytest.mark.parametrize("path", [b"/v1/jobs", b"/v2/relaxd/x/blobs/uploads/"])
def test_a_request_with_two_ends_is_refused_and_the_connection_closed(
    api: Live, path: bytes
) -> None:
    hidden = b"GET /v1/jobs HTTP/1.1\r\nHost: localhost\r\n\r\n"
    sent = b"POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n" % path
    answer = exchange(api, sent + b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + hidden)
    assert answer.startswith(b"HTTP/1.1 400")
    assert answer.count(b"HTTP/1.1") == 1, "nothing is read behind it"


def test_a_long_header_is_refused(api: Live) -> None:
    answer = api.http.get("/v1/jobs", headers={"X-Long": "x" * (40 << 10)})
    assert (answer.status_code, answer.json()["code"]) == (431, "http.header_too_large")
    assert api.http.get("/v1/jobs", headers={"X-Long": "x" * (20 << 10)}).status_code == 200

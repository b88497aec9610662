"""Messages go to public addresses alone, to the one that was checked, and to no redirect."""

import socket
import threading
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, HTTPServer
from ipaddress import ip_address

import pytest

from relaxd.http.public_addresses import is_public
from service.adapters import webhook_sender
from service.adapters.webhook_sender import post

PUBLIC = "93.184.215.14"


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        (PUBLIC, True),
        ("2606:4700:4700::1111", True),
        ("127.0.0.1", False),
        ("10.1.2.3", False),
        ("172.16.0.1", False),
        ("192.168.1.1", False),
        ("169.254.169.254", False),
        ("100.64.0.1", False),
        ("0.0.0.0", False),
        ("224.0.0.1", False),
        ("255.255.255.255", False),
        ("::1", False),
        ("::", False),
        ("fe80::1", False),
        ("fd00::1", False),
        ("ff02::1", False),
        ("::ffff:127.0.0.1", False),
        ("::ffff:169.254.169.254", False),
        ("64:ff9b::7f00:1", False),
        ("64:ff9b::a9fe:a9fe", False),
        ("2002:7f00:1::", False),
        ("2001:0:4136:e378:8000:63bf:80ff:fffe", False),
    ],
)
def test_which_addresses_are_public(address, expected):
    assert is_public(ip_address(address)) is expected


def resolving(*addresses):
    """Stands in for the resolver, and counts how often it is asked."""
    asked = []

    def resolve(host, port, **_):
        asked.append(host)
        return [(2, 1, 6, "", (address, port)) for address in addresses]

    return resolve, asked


@pytest.mark.parametrize(
    "addresses", [("127.0.0.1",), (PUBLIC, "10.0.0.1"), ("::ffff:10.0.0.1",), ("fe80::1",)]
)
def test_a_name_that_resolves_to_a_private_address_is_refused(addresses):
    resolve, _ = resolving(*addresses)
    error = post("https://hooks.example/", b"{}", {}, resolve=resolve)
    assert error == "hooks.example is not a public address"


def test_plain_http_is_refused():
    resolve, asked = resolving(PUBLIC)
    error = post("http://hooks.example/", b"{}", {}, resolve=resolve)
    assert error == "plain HTTP is not allowed"
    assert asked == []


class Server(HTTPServer):
    """Answers with `status`, and keeps what it `received`: path, body and headers."""

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.status, self.received = 204, []


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_POST(self):
        size = int(self.headers["Content-Length"])
        self.server.received.append((self.path, self.rfile.read(size), dict(self.headers)))
        self.send_response(self.server.status)
        self.send_header("Location", "http://127.0.0.1:1/elsewhere")
        self.end_headers()

    def log_message(self, *_):
        pass


@pytest.fixture
def receiver():
    with Server() as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def test_a_message_arrives_at_the_address_that_was_checked(receiver):
    resolve, asked = resolving("127.0.0.1")
    url = f"http://hooks.example:{receiver.server_port}/relaxd?x=1"
    assert post(url, b'{"a":1}', {"webhook-id": "m"}, private=True, resolve=resolve) is None
    ((path, body, headers),) = receiver.received
    assert (path, body, headers["webhook-id"]) == ("/relaxd?x=1", b'{"a":1}', "m")
    assert headers["Host"] == f"hooks.example:{receiver.server_port}"
    assert asked == ["hooks.example"]


@pytest.mark.parametrize("status", [307, 404, 500])
def test_other_answers_are_failures_and_redirects_are_not_followed(receiver, status):
    receiver.status = status
    url = f"http://127.0.0.1:{receiver.server_port}/"
    assert post(url, b"{}", {}, private=True) == f"HTTP {status}"
    assert len(receiver.received) == 1


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_a_receiver_that_drips_is_left_in_time(monkeypatch, scheme):
    """Each wait is short, and they have no end: a first line, or TLS's first record."""
    monkeypatch.setattr(webhook_sender, "DEADLINE_S", 0.5)
    left = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def drip():
            client, _ = listener.accept()
            with client, suppress(OSError):
                client.sendall(b"HTTP/1.1 " if scheme == "http" else b"\x16\x03\x03\x3f\xff")
                while not left.wait(0.05):
                    client.sendall(b"x")

        thread = threading.Thread(target=drip)
        thread.start()
        url = f"{scheme}://127.0.0.1:{listener.getsockname()[1]}/"
        error = post(url, b"{}", {}, private=True)
        left.set()
        thread.join()
    assert error == "TimeoutError: no answer within 0.5 s"


def test_nobody_there():
    assert "ConnectionRefusedError" in post("http://127.0.0.1:1/", b"{}", {}, private=True)
    assert "Error" in post("https://[::1", b"{}", {}, private=True)

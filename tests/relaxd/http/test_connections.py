"""Clients that stand still are closed; those that move are served."""

import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import uvicorn
from starlette.types import Receive, Scope, Send

from relaxd.http.connections import TimedProtocol
from tests.support.servers import serve

PATIENCE_S = 0.5
BIG = 64 << 20
CLOSED = "reset by peer|Broken pipe"
POST = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n"


class Impatient(TimedProtocol):
    patience_s = PATIENCE_S
    least_rate = 1 << 20


async def app(scope: Scope, receive: Receive, send: Send) -> None:
    """Answers with the length of the body; /big with many bytes, /refused before the body."""
    size, more = 0, scope["path"] != "/refused"
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            return
        size, more = size + len(message["body"]), message["more_body"]
    body = bytes(BIG) if scope["path"] == "/big" else str(size).encode()
    length = str(len(body)).encode()
    headers = [(b"content-length", length)]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


@contextmanager
def serving(http: type[TimedProtocol] = Impatient) -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        config = uvicorn.Config(app, http=http, log_config=None, lifespan="off")
        with serve(config, listener) as port:
            yield port


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    with serving() as port:
        yield port


@pytest.fixture
def client(port: int) -> Iterator[socket.socket]:
    with socket.create_connection(("127.0.0.1", port), timeout=30) as client:
        yield client


def rest(client: socket.socket) -> bytearray:
    """Read until the server closes."""
    received = bytearray()
    try:
        while chunk := client.recv(1 << 16):
            received += chunk
    except ConnectionResetError:
        pass
    return received


def is_answered(client: socket.socket) -> bytes:
    """One answer of `app` to a request without a body: the head, and the length as one digit."""
    received = b""
    while not received.endswith(b"\r\n\r\n0"):
        chunk = client.recv(1000)
        assert chunk, received
        received += chunk
    return received


def trickle(client: socket.socket, chunk: bytes, pause: float) -> None:
    for _ in range(1000):
        client.sendall(chunk)
        time.sleep(pause)


@pytest.mark.parametrize("sent", [b"", b"GET / HTTP/1.1\r\nHost:", POST % 100, POST % 100 + b"x"])
def test_a_request_that_does_not_arrive_is_a_408(client: socket.socket, sent: bytes) -> None:
    client.sendall(sent)
    answer = rest(client)
    assert answer.startswith(b"HTTP/1.1 408 ")
    assert b"urn:relaxd:problem:http.request_timeout" in answer


def test_a_second_header_that_does_not_arrive(client: socket.socket) -> None:
    client.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
    assert is_answered(client).startswith(b"HTTP/1.1 200 ")
    client.sendall(b"GET / HTTP")
    assert b"HTTP/1.1 408 " in rest(client)


def test_a_body_that_trickles_is_a_408(client: socket.socket) -> None:
    client.sendall(POST % 1000)
    with pytest.raises(OSError, match=CLOSED):
        trickle(client, b"x", PATIENCE_S / 10)


def test_a_body_that_moves_may_take_its_time(client: socket.socket) -> None:
    client.sendall(POST % (8 << 20))
    for _ in range(8):
        client.sendall(bytes(1 << 20))
        time.sleep(PATIENCE_S / 2)
    client.shutdown(socket.SHUT_WR)
    assert rest(client).endswith(str(8 << 20).encode())


def test_a_client_that_does_not_read_is_closed(client: socket.socket) -> None:
    client.sendall(b"GET /big HTTP/1.1\r\nHost: x\r\n\r\n")
    time.sleep(6 * PATIENCE_S)
    assert len(rest(client)) < BIG


def test_a_client_that_reads_gets_everything(client: socket.socket) -> None:
    client.sendall(b"GET /big HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
    assert len(rest(client)) > BIG


def test_a_body_that_nobody_wants_is_not_read_for_ever(client: socket.socket) -> None:
    client.sendall((POST % (1 << 40)).replace(b" / ", b" /refused "))
    with pytest.raises(OSError, match=CLOSED):
        trickle(client, bytes(1 << 16), PATIENCE_S / 20)


def test_an_idle_connection_stays_for_the_next_request(client: socket.socket) -> None:
    for _ in range(2):
        client.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        assert is_answered(client).startswith(b"HTTP/1.1 200 ")
        time.sleep(2 * PATIENCE_S)


class Keeping(TimedProtocol):
    most, crowded_s = 4, 0.2


def test_an_idle_connection_is_kept_for_long_unless_there_are_many() -> None:
    request = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"
    with serving(Keeping) as port:
        first, second = (socket.create_connection(("127.0.0.1", port), timeout=30) for _ in "ab")
        first.sendall(request)
        assert is_answered(first).startswith(b"HTTP/1.1 200 ")
        assert rest(first) == b""
        second.sendall(request)
        assert is_answered(second).startswith(b"HTTP/1.1 200 ")
        time.sleep(2 * Keeping.crowded_s)
        second.sendall(request)
        assert is_answered(second).startswith(b"HTTP/1.1 200 ")
        first.close()
        second.close()


class Few(TimedProtocol):
    most = 2


def test_a_connection_too_many_is_a_503_and_the_others_go_on() -> None:
    request = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"
    with serving(Few) as port:
        first, second, third, fourth = (
            socket.create_connection(("127.0.0.1", port), timeout=30) for _ in range(4)
        )
        for client in (first, second):
            client.sendall(request)
            assert is_answered(client).startswith(b"HTTP/1.1 200 ")
        third.sendall(request)
        for client in (third, fourth):
            answer = rest(client)
            assert answer.startswith(b"HTTP/1.1 503 ")
            assert b"urn:relaxd:problem:http.too_many_connections" in answer
            client.close()
        first.close()
        second.sendall(request)
        assert is_answered(second).startswith(b"HTTP/1.1 200 ")
        wait_for_room(port, request)
        second.close()


def wait_for_room(port: int, request: bytes) -> None:
    """Connect until one is served."""
    for _ in range(200):
        with socket.create_connection(("127.0.0.1", port), timeout=30) as client:
            client.sendall(request)
            if client.recv(1000).startswith(b"HTTP/1.1 200 "):
                return
        time.sleep(0.05)
    pytest.fail("the place that the first left was not given to anyone")


class Graceless(TimedProtocol):
    most, grace_s = 3, 0.2


def test_connections_on_which_nobody_asks_keep_nobody_out() -> None:
    request = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"
    with serving(Graceless) as port:
        address = ("127.0.0.1", port)
        served = socket.create_connection(address, timeout=30)
        served.sendall(request)
        assert is_answered(served).startswith(b"HTTP/1.1 200 ")
        silent = [socket.create_connection(address, timeout=30) for _ in range(2)]
        silent[1].sendall(b"GET / HT")
        time.sleep(2 * Graceless.grace_s)
        with socket.create_connection(address, timeout=30) as client:
            client.sendall(request)
            assert is_answered(client).startswith(b"HTTP/1.1 200 ")
        assert rest(silent[0]) == b""
        served.sendall(request)
        assert is_answered(served).startswith(b"HTTP/1.1 200 ")
        for client in (served, *silent):
            client.close()


class Terse(TimedProtocol):
    most = 1
    document = staticmethod(lambda refusal: ("text/plain", refusal.code.encode()))


def test_a_server_has_its_own_documents() -> None:
    with serving(Terse) as port:
        address = ("127.0.0.1", port)
        with socket.create_connection(address, timeout=30) as first:
            first.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
            is_answered(first)
            with socket.create_connection(address, timeout=30) as second:
                answer = rest(second)
        assert b"Content-Type: text/plain\r\n" in answer
        assert answer.endswith(b"http.too_many_connections")

from collections.abc import Callable
from typing import Any

import httpx
import pytest

from relaxd.client import transport as module
from relaxd.client.job import JobHandle
from relaxd.client.transport import ATTEMPTS, Transport
from relaxd.errors import ServerError, ServerUnreachable

Handler = Callable[[httpx.Request], httpx.Response]


@pytest.fixture
def transport_to(monkeypatch: pytest.MonkeyPatch) -> Callable[[Handler], Transport]:
    monkeypatch.setattr("time.sleep", lambda seconds: None)

    def build(handler: Handler) -> Transport:
        transport = Transport("http://relaxd.test", token="t")
        transport._http = httpx.Client(
            base_url=transport.url, transport=httpx.MockTransport(handler)
        )
        return transport

    return build


class Flaky:
    """Fails `failures` times, then answers; `error` is what failing looks like."""

    def __init__(self, failures: int, error: Exception | httpx.Response) -> None:
        self.failures, self.error, self.requests = failures, error, 0

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.requests += 1
        if self.requests > self.failures:
            return httpx.Response(200, json={"ok": True})
        if isinstance(self.error, Exception):
            raise self.error
        return self.error


LOST, REFUSED, BUSY = (
    httpx.ReadError("lost"),
    httpx.ConnectError("refused"),
    httpx.Response(503, json={"detail": "busy"}),
)


@pytest.mark.parametrize("error", [LOST, REFUSED, BUSY])
@pytest.mark.parametrize(
    ("method", "headers"), [("GET", {}), ("PUT", {}), ("POST", {"Idempotency-Key": "k"})]
)
def test_what_may_be_repeated_is(
    transport_to: Callable[[Handler], Transport],
    method: str,
    headers: dict[str, str],
    error: Exception,
) -> None:
    handler = Flaky(ATTEMPTS - 1, error)
    assert transport_to(handler).json(method, "/", headers=headers) == {"ok": True}
    assert handler.requests == ATTEMPTS


@pytest.mark.parametrize(("error", "raised"), [(LOST, ServerUnreachable), (BUSY, ServerError)])
def test_a_post_without_a_key_is_sent_once(
    transport_to: Callable[[Handler], Transport], error: Exception, raised: type[Exception]
) -> None:
    handler = Flaky(1, error)
    with pytest.raises(raised):
        transport_to(handler).request("POST", "/")
    assert handler.requests == 1


def test_a_refused_connection_has_sent_nothing(
    transport_to: Callable[[Handler], Transport],
) -> None:
    handler = Flaky(1, REFUSED)
    assert transport_to(handler).request("POST", "/").is_success


def test_giving_up(transport_to: Callable[[Handler], Transport]) -> None:
    with pytest.raises(ServerUnreachable, match=r"relaxd\.test"):
        transport_to(Flaky(99, REFUSED)).request("GET", "/")


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (
            httpx.Response(422, json={"type": "urn:x", "detail": "no such dim", "hint": "h"}),
            "no such dim",
        ),
        (
            httpx.Response(404, json={"errors": [{"code": "BLOB_UNKNOWN", "message": "gone"}]}),
            "gone",
        ),
        (httpx.Response(418, text="<html>"), "418"),
        (httpx.Response(400, json=[1]), "400"),
    ],
)
def test_every_refusal_is_a_server_error(
    transport_to: Callable[[Handler], Transport], answer: httpx.Response, message: str
) -> None:
    with pytest.raises(ServerError, match=message) as caught:
        transport_to(lambda request: answer).request("GET", "/")
    assert caught.value.status == answer.status_code


def test_a_server_of_another_kind(transport_to: Callable[[Handler], Transport]) -> None:
    with pytest.raises(ServerUnreachable, match="does not answer like"):
        transport_to(lambda request: httpx.Response(200, text="hello")).json("GET", "/v1/jobs")


def test_the_token_goes_along() -> None:
    with Transport("http://relaxd.test", token="t")._http as http:
        assert http.headers["Authorization"] == "Bearer t"


def _sse(*numbers: int) -> bytes:
    return b"".join(
        b': ping\n\nid: %d\nevent: build.log\ndata: {"seq": %d, "type": "build.log", "time": "", '
        b'"target": null, "data": {}}\n\n' % (n, n)
        for n in numbers
    )


def test_events_are_taken_up_where_they_broke_off(
    transport_to: Callable[[Handler], Transport],
) -> None:
    asked: list[str] = []

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(request.headers["Last-Event-ID"])
        parts: Any = {"0": _sse(1, 2) + b"data: {", "2": httpx.ReadError("lost"), "5": None}.get(
            asked[-1], _sse(3, 4, 5)
        )
        if isinstance(parts, Exception) and asked.count("2") == 1:
            raise parts
        return (
            httpx.Response(204)
            if parts is None
            else httpx.Response(
                200, content=_sse(3, 4, 5) if isinstance(parts, Exception) else parts
            )
        )

    job = JobHandle(transport_to(answer), {"id": "j", "state": "running", "builds": []})
    assert [event.seq for event in job.events()] == [1, 2, 3, 4, 5]
    assert asked == ["0", "2", "2", "5"]


@pytest.mark.parametrize(
    ("asked", "pauses"),
    [
        ("2", [2, 2, 2]),
        ("999", [module.LONGEST_PAUSE] * 3),
        ("soon", [0.2, 0.4, 0.8]),
        ("-1", [0.2, 0.4, 0.8]),
    ],
)
def test_a_busy_server_is_given_the_time_that_it_asks_for(
    transport_to: Callable[[Handler], Transport],
    monkeypatch: pytest.MonkeyPatch,
    asked: str,
    pauses: list[float],
) -> None:
    transport = transport_to(Flaky(3, httpx.Response(503, headers={"Retry-After": asked})))
    slept: list[float] = []
    monkeypatch.setattr("time.sleep", slept.append)
    assert transport.json("GET", "/") == {"ok": True}
    assert slept == pauses

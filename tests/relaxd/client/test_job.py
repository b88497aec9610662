"""A job's events as they come over the wire, and what its builds say."""

import json
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from relaxd.client.errors import JobFailed, PullError
from relaxd.client.job import JobEvent, JobHandle, _parse, failure_of
from relaxd.client.transport import Transport
from relaxd.errors import ServerError, ServerUnreachable

EVENTS = st.builds(
    JobEvent,
    seq=st.integers(1, 99),
    type=st.text(max_size=8),
    time=st.just("2026-01-01T00:00:00Z"),
    target=st.none() | st.text(max_size=8),
    data=st.dictionaries(st.text(max_size=4), st.text(max_size=8), max_size=3),
)


def lines_of(event: JobEvent, *, indent: int | None) -> list[str]:
    text = json.dumps(vars(event), indent=indent)
    return [f"id: {event.seq}", "event: x", *(f"data: {line}" for line in text.split("\n")), ""]


@given(events=st.lists(EVENTS, max_size=4), indent=st.none() | st.integers(0, 2))
def test_a_stream_is_its_events(events: list[JobEvent], indent: int | None) -> None:
    lines = [": a comment", "retry: 100", ""]
    for event in events:
        lines += [*lines_of(event, indent=indent), ": heartbeat", ""]
    assert list(_parse(iter(lines))) == events


def test_an_event_cut_short_is_not_told() -> None:
    event = JobEvent(1, "job.queued", "t", None, {})
    lines = lines_of(event, indent=None)
    assert list(_parse(iter(lines[:-1]))) == []


def handle(builds: list[dict[str, Any]], answer: Any = None) -> JobHandle:
    transport = Transport("http://service")
    mock = httpx.MockTransport(answer or (lambda request: httpx.Response(500)))
    transport._http = httpx.Client(base_url=transport.url, transport=mock)
    return JobHandle(transport, {"id": "j1", "state": "running", "builds": builds})


def build(target: str, **values: Any) -> dict[str, Any]:
    return {"target": target, "state": "failed", "artifact": None, **values}


def test_the_only_build_needs_no_name() -> None:
    assert handle([build("native")]).build()["target"] == "native"
    with pytest.raises(PullError, match="a, b"):
        handle([build("a"), build("b")]).build()
    with pytest.raises(PullError):
        handle([build("a"), build("b")]).build("c")


def test_a_build_without_an_artifact_says_why() -> None:
    failure = {"code": "import.shape", "message": "no such shape", "hint": "declare it"}
    error = failure_of(build("native", error=failure))
    assert isinstance(error, JobFailed)
    assert (error.message, error.hint, error.failure) == ("no such shape", "declare it", failure)
    assert failure_of(build("native", state="timed_out")).message == (
        "the build for native is timed out"
    )


def test_a_lost_stream_is_taken_up_where_it_broke_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("relaxd.client.job.time.sleep", lambda seconds: None)
    asked = []

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(request.headers["Last-Event-ID"])
        if len(asked) == 1:
            event = JobEvent(7, "build.log", "t", "native", {"line": "x"})
            return httpx.Response(200, text="\n".join(lines_of(event, indent=None)) + "\n")
        if len(asked) == 2:
            raise httpx.ReadError("gone")
        return httpx.Response(204)

    events = list(handle([], answer).events())
    assert [event.seq for event in events] == [7]
    assert asked == ["0", "7", "7"]


def test_a_service_that_stays_away_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("relaxd.client.job.time.sleep", lambda seconds: None)

    def away(request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("refused")

    with pytest.raises(ServerUnreachable):
        list(handle([], away).events())


@pytest.mark.parametrize(("status", "asked"), [(503, 4), (404, 1)])
def test_a_busy_service_is_asked_for_the_stream_again(
    monkeypatch: pytest.MonkeyPatch, status: int, asked: int
) -> None:
    monkeypatch.setattr("relaxd.client.job.time.sleep", lambda seconds: None)
    requests = []

    def answer(request: httpx.Request) -> httpx.Response:
        requests.append(request)
        return httpx.Response(status, json={"detail": "the database is away"})

    with pytest.raises(ServerError) as caught:
        list(handle([], answer).events())
    assert (caught.value.status, len(requests)) == (status, asked)


def test_a_stream_comes_once_the_service_is_no_longer_busy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("relaxd.client.job.time.sleep", lambda seconds: None)
    answers = [httpx.Response(503, json={}), httpx.Response(204)]
    assert list(handle([], lambda request: answers.pop(0)).events()) == []
    assert answers == []

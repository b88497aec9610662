import json
import threading

import httpx
import pytest

from service.api import jobs
from tests.service.live import Live


def parse(text: str) -> list[dict[str, str]]:
    """The events of a stream, comments left out."""
    blocks = [
        block.splitlines() for block in text.split("\n\n") if block and not block.startswith(":")
    ]
    return [dict(line.split(": ", 1) for line in block) for block in blocks]


@pytest.fixture(scope="module")
def job_id(api: Live) -> str:
    return str(api.compile(b"followed", wait=20).json()["id"])


def test_the_stream_tells_everything_and_ends(api: Live, job_id: str) -> None:
    answer = api.http.get(f"/v1/jobs/{job_id}/events")
    assert answer.headers["Content-Type"].startswith("text/event-stream")
    events = parse(answer.text)
    assert [event["id"] for event in events] == [str(number + 1) for number in range(len(events))]
    kinds = [event["event"] for event in events]
    assert (kinds[0], kinds[-1]) == ("job.queued", "job.finished")
    assert "build.stage" in kinds
    documents = [json.loads(event["data"]) for event in events]
    assert [document["type"] for document in documents] == kinds
    assert {document["target"] for document in documents} == {None, "native"}


def test_the_stream_goes_on_after_the_last_event_had(api: Live, job_id: str) -> None:
    everything = parse(api.http.get(f"/v1/jobs/{job_id}/events").text)
    rest = parse(api.http.get(f"/v1/jobs/{job_id}/events", headers={"Last-Event-ID": "2"}).text)
    assert rest == everything[2:]


def test_nothing_is_left_to_tell(api: Live, job_id: str) -> None:
    last = parse(api.http.get(f"/v1/jobs/{job_id}/events").text)[-1]["id"]
    answer = api.http.get(f"/v1/jobs/{job_id}/events", headers={"Last-Event-ID": last})
    assert (answer.status_code, answer.content) == (204, b"")


def test_a_last_event_id_that_is_none_of_ours(api: Live, job_id: str) -> None:
    problem = api.http.get(
        f"/v1/jobs/{job_id}/events", headers={"Last-Event-ID": "yesterday"}
    ).json()
    assert (problem["status"], problem["field"]) == (422, "last-event-id")


def test_a_running_job_sends_heartbeats_and_its_end(
    api: Live, monkeypatch: pytest.MonkeyPatch
) -> None:
    release = threading.Event()
    monkeypatch.setattr(jobs, "HEARTBEAT_S", 0.05)
    monkeypatch.setattr(api.compiler, "behaviour", lambda cancelled: release.wait(20))
    job = api.compile(b"slow").json()
    with httpx.stream("GET", f"{api.url}/v1/jobs/{job['id']}/events", timeout=20) as answer:
        text = ""
        for chunk in answer.iter_text():
            text += chunk
            if ": ping" in text and "build.log" in text:
                release.set()
    assert release.is_set()
    assert parse(text)[-1]["event"] == "job.finished"


def test_the_log_reads_like_one(api: Live, job_id: str) -> None:
    answer = api.http.get(f"/v1/jobs/{job_id}/logs")
    assert answer.headers["Content-Type"].startswith("text/plain")
    lines = answer.text.splitlines()
    assert lines[-1].endswith("succeeded")
    assert any(line.endswith("  compiling") for line in lines)
    assert (
        api.http.get(f"/v1/jobs/{job_id}/logs", params={"target": "x86-64-v2"}).text.count(
            "compiling"
        )
        == 0
    )

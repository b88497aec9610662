import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from compiler.errors import CompileCancelled, ImportFailed
from service.identity import Entry
from service.usecases import auditing
from tests.service.live import Live

ABSENT = "sha256:" + "0" * 64


@pytest.fixture
def blocked(api: Live) -> Iterator[threading.Event]:
    """While the test runs, builds wait until the event is set or they are cancelled."""
    release = threading.Event()

    def wait(cancelled: object) -> None:
        while not release.wait(0.02):
            if cancelled():  # type: ignore[operator]
                raise CompileCancelled("cancelled", reason="cancelled")

    usual, api.compiler.behaviour = api.compiler.behaviour, wait
    yield release
    release.set()
    api.compiler.behaviour = usual


def test_submitting_by_digest(api: Live) -> None:
    answer = api.http.post(
        "/v1/jobs",
        json={"model": api.upload(b"by digest"), "targets": ["native", "x86-64-v2"]},
        params={"name": "m"},
    )
    assert answer.status_code == 202
    job = api.http.get(answer.headers["Location"], params={"wait": 20}).json()
    assert (job["state"], job["name"]) == ("succeeded", "m")
    assert [build["target"] for build in job["builds"]] == ["native", "x86-64-v2"]


@pytest.mark.parametrize("path", ["/v1/jobs", "/v1/compile"])
def test_each_request_for_a_job_has_one_entry_in_the_audit_log(api: Live, path: str) -> None:
    request = {"model": api.upload(b"audited"), "targets": ["x86-64-v2"]}
    form = {"model": ("m.onnx", b"audited"), "request": (None, '{"targets": ["x86-64-v2"]}')}
    body: dict[str, Any] = {"json": request} if path == "/v1/jobs" else {"files": form}
    asked = [
        api.http.post(path, headers={"Idempotency-Key": f"audited{path}"}, **body) for _ in range(2)
    ]
    job_id = asked[0].json()["id"]
    until = time.monotonic() + 20
    while len(result := _entries(api, job_id)) < 2 and time.monotonic() < until:
        time.sleep(0.05)
    assert [entry.request_id for entry in result] == [
        answer.headers["X-Request-ID"] for answer in reversed(asked)
    ]
    assert {(entry.action, entry.outcome, entry.detail["status"]) for entry in result} == {
        ("submit", "done", 202)
    }


def _entries(api: Live, subject: str) -> list[Entry]:
    listed = auditing.list_entries(api.services.core, None, 100)
    return [entry for entry in listed if entry.subject == subject]


def test_a_registry_client_finds_the_bundles_of_a_job_that_nobody_looked_at(api: Live) -> None:
    job = api.http.post(
        "/v1/jobs", json={"model": api.upload(b"indexed"), "targets": ["x86-64-v2", "aarch64"]}
    ).json()
    tag = f"/v2/relaxd/bundles/manifests/job-{job['id']}"

    def listed() -> set[str]:
        answer = api.http.get(tag)
        return (
            {entry["annotations"]["org.relaxd.target"] for entry in answer.json()["manifests"]}
            if answer.status_code == 200
            else set()
        )

    until = time.monotonic() + 20
    while listed() != {"x86-64-v2", "aarch64"} and time.monotonic() < until:
        time.sleep(0.05)
    assert listed() == {"x86-64-v2", "aarch64"}


def test_a_model_that_the_store_lacks(api: Live) -> None:
    problem = api.http.post("/v1/jobs", json={"model": ABSENT}).json()
    assert (problem["status"], problem["code"], problem["field"]) == (422, "model.unknown", "model")
    assert "upload" in problem["hint"]


def test_one_key_makes_one_job(api: Live) -> None:
    headers, body = {"Idempotency-Key": "k-1"}, {"model": api.upload(b"keyed")}
    first, second = (api.http.post("/v1/jobs", json=body, headers=headers) for _ in range(2))
    assert first.json()["id"] == second.json()["id"]
    other = api.http.post("/v1/jobs", json=body | {"targets": ["x86-64-v2"]}, headers=headers)
    assert (other.status_code, other.json()["type"]) == (
        409,
        "urn:relaxd:problem:idempotency.conflict",
    )


def test_the_list_is_newest_first_and_can_be_of_one_state(
    api: Live, blocked: threading.Event
) -> None:
    job = api.http.post("/v1/jobs", json={"model": api.upload(b"listed")}).json()
    assert api.http.get("/v1/jobs", params={"limit": 1}).json()["jobs"][0]["id"] == job["id"]
    assert job["id"] not in [
        result["id"]
        for result in api.http.get("/v1/jobs", params={"state": "succeeded"}).json()["jobs"]
    ]
    blocked.set()
    api.http.get(f"/v1/jobs/{job['id']}", params={"wait": 20})
    assert job["id"] in [
        result["id"]
        for result in api.http.get("/v1/jobs", params={"state": "succeeded"}).json()["jobs"]
    ]


@pytest.mark.parametrize("params", [{"limit": 0}, {"limit": 1001}, {"state": "happy"}])
def test_a_list_that_makes_no_sense(api: Live, params: dict[str, str]) -> None:
    problem = api.http.get("/v1/jobs", params=params).json()
    assert (problem["status"], problem["field"]) == (422, next(iter(params)))


@pytest.mark.parametrize(
    ("method", "path"), [("GET", ""), ("POST", ":cancel"), ("GET", "/events"), ("GET", "/logs")]
)
def test_an_unknown_job(api: Live, method: str, path: str) -> None:
    answer = api.http.request(method, f"/v1/jobs/nonesuch{path}")
    assert (answer.status_code, answer.json()["code"]) == (404, "job.unknown")


def test_cancelling_ends_the_build_and_is_idempotent(api: Live, blocked: threading.Event) -> None:
    job = api.http.post("/v1/jobs", json={"model": api.upload(b"cancelled")}).json()
    assert api.http.post(f"/v1/jobs/{job['id']}:cancel").status_code == 200
    job = api.http.get(f"/v1/jobs/{job['id']}", params={"wait": 20}).json()
    assert job["state"] == "cancelled"
    assert api.http.post(f"/v1/jobs/{job['id']}:cancel").json() == job


def test_a_wait_that_is_up_answers_with_the_job_as_it_stands(
    api: Live, blocked: threading.Event
) -> None:
    job = api.http.post("/v1/jobs", json={"model": api.upload(b"waited for")}).json()
    assert api.http.get(f"/v1/jobs/{job['id']}", params={"wait": 0.1}).json()["state"] in (
        "queued",
        "running",
    )


def test_a_failed_build_says_where(api: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(cancelled: object) -> None:
        raise ImportFailed(
            "no such operator",
            reason="unsupported_op",
            node="/a/b",
            op="Oddity",
            hint="replace it",
            nodes=["/a/b"],
        )

    monkeypatch.setattr(api.compiler, "behaviour", fail)
    job = api.compile(b"faulty", wait=20).json()
    assert job["state"] == "failed"
    error = job["builds"][0]["error"]
    assert (error["code"], error["stage"], error["node"], error["op"]) == (
        "import.unsupported_op",
        "import",
        "/a/b",
        "Oddity",
    )
    problem = api.http.post("/v1/inspect", json={"model": api.upload(b"faulty too")}).json()
    assert (problem["status"], problem["code"], problem["stage"], problem["op"]) == (
        422,
        "import.unsupported_op",
        "import",
        "Oddity",
    )
    assert problem["details"] == {"nodes": ["/a/b"]}

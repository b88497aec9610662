import errno
import logging
import socket
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import structlog
from starlette.datastructures import UploadFile

from artifacts import files
from service.errors import DatabaseUnavailable
from service.usecases import readiness
from tests.e2e.deployment import until
from tests.service.live import Live
from tests.support import plain_http


def test_what_is_not_there(api: Live) -> None:
    answer = api.http.get("/nope")
    assert (answer.status_code, answer.json()["code"], answer.json()["detail"]) == (
        404,
        "http.not_found",
        "/nope does not exist",
    )
    answer = api.http.delete("/v1/targets")
    assert (answer.status_code, answer.json()["code"], answer.headers["Allow"]) == (
        405,
        "http.method_not_allowed",
        "GET",
    )


def test_a_request_keeps_the_id_it_came_with(api: Live) -> None:
    assert (
        api.http.get("/healthz", headers={"X-Request-ID": "abc-1"}).headers["X-Request-ID"]
        == "abc-1"
    )
    assert (
        api.http.get("/healthz", headers={"X-Request-ID": "a b"}).headers["X-Request-ID"] != "a b"
    )


def test_a_database_that_is_away_is_no_readiness(
    api: Live, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert api.http.get("/readyz").json() == {"status": "ok"}

    def away() -> None:
        raise DatabaseUnavailable("gone")

    monkeypatch.setattr(readiness, "REMEMBERED_S", 0)
    monkeypatch.setattr(type(api.services.core.db), "check_writable", lambda self, write: away())
    answer = api.http.get("/readyz")
    assert (answer.status_code, answer.json()["retryable"]) == (503, True)
    assert api.http.get("/healthz").status_code == 200


def test_a_store_that_is_gone_or_full_is_no_readiness(
    api: Live, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(readiness, "REMEMBERED_S", 0)
    store = Path(api.services.settings.store)
    store.rename(store.with_name("elsewhere"))
    answer = api.http.get("/readyz")
    assert (answer.status_code, answer.json()["code"]) == (503, "store.unavailable")
    store.with_name("elsewhere").rename(store)
    assert api.http.get("/readyz").status_code == 200

    def full(path: str, flags: int) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(files, "_open_read_only", full)
    answer = api.http.get("/readyz")
    assert (answer.status_code, answer.json()["code"]) == (507, "store.full")


def test_a_disk_that_is_full_during_an_upload_is_a_507(
    api: Live, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def full(self: UploadFile, data: bytes) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(UploadFile, "write", full)
    answer = api.compile(b"a model")
    problem = answer.json()
    assert (answer.status_code, problem["code"], problem["retryable"]) == (507, "store.full", True)


def test_a_bug_is_a_problem_without_its_text(
    api: Live, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(type(api.services.jobs), "targets", lambda self: 1 / 0)
    with caplog.at_level(logging.CRITICAL):
        answer = api.http.get("/v1/targets")
    assert (answer.status_code, answer.json()["code"]) == (500, "internal")
    assert answer.headers["Connection"] == "close"
    assert "division" not in answer.text


def test_metrics_count_requests_by_route(api: Live) -> None:
    api.http.get("/v1/jobs/nonesuch")
    text = api.http.get("/metrics").text
    assert 'relaxd_http_requests_total{method="GET",route="/v1/jobs/{job_id}",status="404"}' in text
    assert 'relaxd_http_request_seconds_count{method="GET",route="/healthz"}' in text


def test_requests_are_logged_with_their_job(api: Live) -> None:
    with structlog.testing.capture_logs() as logs:
        assert (
            plain_http.get(
                f"{api.url}/v1/jobs/a-job", headers={"X-Request-ID": "logged-1"}
            ).status_code
            == 404
        )
    (entry,) = [entry for entry in logs if entry["event"] == "request"]
    assert (entry["request_id"], entry["job_id"], entry["status"], entry["path"]) == (
        "logged-1",
        "a-job",
        404,
        "/v1/jobs/a-job",
    )


def test_an_aborted_upload_is_no_error_of_the_service(
    api: Live, caplog: pytest.LogCaptureFixture
) -> None:
    head = (
        "POST /v1/compile HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100000\r\n"
        "Content-Type: multipart/form-data; boundary=b\r\n\r\n"
        '--b\r\nContent-Disposition: form-data; name="model"; filename="m"\r\n\r\nxxx'
    )
    address = urlsplit(api.url)
    with socket.create_connection((str(address.hostname), int(address.port or 0))) as client:
        client.sendall(head.encode())
    line = 'relaxd_http_requests_total{method="POST",route="/v1/compile",status="499"} 1.0'
    until(lambda: line in api.http.get("/metrics").text, 20, "the request's end")
    assert not caplog.records

"""Every answer has an id, and every request is counted and logged once."""

from collections.abc import Iterator

import pytest
import structlog
from fastapi import FastAPI, Response
from fastapi.responses import StreamingResponse
from fastapi.testclient import TestClient
from prometheus_client import CollectorRegistry

from artifacts.errors import BlobCorrupt
from service.api.access import HEADER, LONGEST_PATH, Access, RequestMetrics


@pytest.fixture
def registry() -> CollectorRegistry:
    return CollectorRegistry()


@pytest.fixture
def client(registry: CollectorRegistry) -> TestClient:
    app = FastAPI()

    @app.get("/v1/jobs/{job_id}")
    def job(job_id: str) -> str:
        return job_id

    @app.get("/healthz")
    def health() -> str:
        return "ok"

    @app.get("/broken")
    def broken() -> str:
        raise RuntimeError("a secret")

    app.add_middleware(Access, metrics=RequestMetrics(registry))
    return TestClient(app, raise_server_exceptions=False)


@pytest.mark.parametrize(
    ("offered", "retained"),
    [("a-b.C_9", True), ("x" * 64, True), ("x" * 65, False), ("a b", False), ("a;b", False)],
)
def test_a_clients_own_id_is_kept_where_it_is_one(
    client: TestClient, offered: str, retained: bool
) -> None:
    answer = client.get("/healthz", headers={HEADER: offered})
    assert (answer.headers[HEADER] == offered) is retained
    assert len(answer.headers[HEADER]) == (len(offered) if retained else 32)


def test_a_request_is_counted_under_its_route(
    client: TestClient, registry: CollectorRegistry
) -> None:
    for path in ("/v1/jobs/a", "/v1/jobs/b", "/nowhere", "/broken"):
        client.get(path)

    def count(route: str, status: str) -> float | None:
        labels = {"method": "GET", "route": route, "status": status}
        return registry.get_sample_value("relaxd_http_requests_total", labels)

    assert count("/v1/jobs/{job_id}", "200") == 2
    assert count("unmatched", "404") == 1
    assert count("/broken", "500") == 1
    labels = {"method": "GET", "route": "/v1/jobs/{job_id}"}
    assert registry.get_sample_value("relaxd_http_request_seconds_count", labels) == 2


def test_one_line_a_request_with_the_job(client: TestClient) -> None:
    with structlog.testing.capture_logs() as logs:
        client.get("/v1/jobs/a")
        client.get("/healthz")
    (job, quiet) = logs
    assert (job["log_level"], job["job_id"], job["status"], job["path"]) == (
        "info",
        "a",
        200,
        "/v1/jobs/a",
    )
    assert quiet["log_level"] == "debug"
    assert "job_id" not in quiet


def test_methods_that_clients_make_up_are_one_label(
    client: TestClient, registry: CollectorRegistry
) -> None:
    for number in range(3):
        client.request(f"MADEUP{number}", "/healthz")
    labels = {"method": "other", "route": "/healthz", "status": "405"}
    assert registry.get_sample_value("relaxd_http_requests_total", labels) == 3
    listed = {
        sample.labels.get("method") for metric in registry.collect() for sample in metric.samples
    }
    assert listed == {"other"}


def test_a_long_path_is_cut_in_the_log(client: TestClient) -> None:
    with structlog.testing.capture_logs() as logs:
        client.get("/" + "x" * 10_000)
    assert len(logs[0]["path"]) == LONGEST_PATH


def test_an_answer_that_breaks_off_is_one_line_of_the_log() -> None:
    app = FastAPI()

    @app.get("/blob")
    def blob() -> StreamingResponse:
        return StreamingResponse(chunks())

    def chunks() -> Iterator[bytes]:
        yield b"sound"
        raise BlobCorrupt("sha256:" + "a" * 64)

    app.add_exception_handler(BlobCorrupt, lambda request, error: Response(status_code=404))
    app.add_middleware(Access, metrics=RequestMetrics(CollectorRegistry()))
    with structlog.testing.capture_logs() as lines:
        TestClient(app).get("/blob")
    assert [line["event"] for line in lines] == ["answer broken off", "request"]
    assert "was corrupt" in lines[0]["error"]

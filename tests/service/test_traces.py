"""A request and its builds make one trace, across API, worker and compile process."""

import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from compiler.errors import ImportFailed
from compiler.isolation.messages import Progress, StageStarted
from relaxd.contract.request import CompileRequest
from relaxd.contract.states import Stage
from service import bootstrap
from service.adapters.opentelemetry_traces import OpenTelemetryTracer
from service.errors import TracesUnavailable
from service.settings import Settings
from service.usecases.builds import claiming, sweeping
from service.workers.build_trace import BuildTrace
from tests.service.live import Live, live

ROOT = Path(__file__).parents[2]
CLIENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


def tracer_into(exporter: InMemorySpanExporter, ratio: float = 1.0) -> OpenTelemetryTracer:
    return OpenTelemetryTracer("relaxd", "here", ratio, SimpleSpanProcessor(exporter))


@pytest.fixture
def exporter() -> InMemorySpanExporter:
    return InMemorySpanExporter()


@pytest.fixture
def api(tmp_path: Path, exporter: InMemorySpanExporter) -> Iterator[Live]:
    with live(tmp_path, tracer_into(exporter)) as running:
        yield running


def trace_of(exporter: InMemorySpanExporter) -> dict[str, ReadableSpan]:
    """The spans of the trace that the client began, by name; each name is there once."""
    results = [s for s in exporter.get_finished_spans() if f"{s.context.trace_id:032x}" in CLIENT]
    assert len({span.name for span in results}) == len(results)
    return {span.name: span for span in results}


def parents(spans: dict[str, ReadableSpan]) -> dict[str, str | None]:
    names = {span.context.span_id: name for name, span in spans.items()}
    return {name: names.get(span.parent.span_id) for name, span in spans.items() if span.parent}


def build_bundle(api: Live, **params: object) -> dict:
    headers = {"traceparent": CLIENT}
    files: dict[str, Any] = {"model": ("m.onnx", b"a model"), "request": (None, "{}")}
    answer = api.http.post("/v1/compile", files=files, params={"wait": 20}, headers=headers)
    assert answer.status_code == 200
    return answer.json()


def settle(exporter: InMemorySpanExporter, *names: str) -> dict[str, ReadableSpan]:
    """The trace once the worker has ended its spans, which it does after the job's end."""
    for _ in range(200):
        if set(names) <= {span.name for span in exporter.get_finished_spans()}:
            return trace_of(exporter)
        threading.Event().wait(0.05)
    raise AssertionError([span.name for span in exporter.get_finished_spans()])


def test_a_request_and_its_build_are_one_trace(api, exporter):
    job = build_bundle(api)
    spans = settle(exporter, "build", "POST /v1/compile")
    assert parents(spans) == {
        "POST /v1/compile": None,  # the client's own
        "submit": "POST /v1/compile",
        "queue": "submit",
        "claim": "submit",
        "build": "submit",
        "prepare": "build",
        "import": "build",
        "publish": "build",
    }
    build = spans["build"]
    assert (spans["POST /v1/compile"].kind, build.kind) == (SpanKind.SERVER, SpanKind.CONSUMER)
    assert build.attributes["relaxd.job"] == job["id"]
    assert build.attributes["relaxd.ending"] == "succeeded"
    assert spans["POST /v1/compile"].attributes["http.response.status_code"] == 200
    # Each begins where the one before it ends.
    assert spans["queue"].end_time <= spans["claim"].end_time <= build.start_time
    assert spans["prepare"].end_time <= spans["import"].start_time
    assert spans["import"].end_time <= spans["publish"].start_time <= build.end_time


def test_the_first_event_names_the_submission(api, exporter):
    job = build_bundle(api)
    submit = trace_of(exporter)["submit"]
    (first, *_) = api.services.jobs.events(job["id"])
    trace, span = submit.context.trace_id, submit.context.span_id
    assert first.data["traceparent"] == f"00-{trace:032x}-{span:016x}-01"


def test_a_failure_marks_its_stage_and_its_build(api, exporter):
    def fail(cancelled: Callable[[], bool]) -> None:
        raise ImportFailed("no such operator", reason="unsupported", node="n", op="Foo")

    api.compiler.behaviour = fail
    build_bundle(api)
    spans = settle(exporter, "build")
    failed = {name for name, span in spans.items() if span.status.status_code is StatusCode.ERROR}
    assert failed == {"import", "build"}
    assert spans["build"].attributes["relaxd.ending"] == "failed"
    assert str(spans["build"].attributes["error.type"]).startswith("import.")


def test_a_refused_submission_is_marked(api, exporter):
    digest = "sha256:" + "0" * 64
    answer = api.http.post("/v1/jobs", json={"model": digest}, headers={"traceparent": CLIENT})
    assert answer.status_code == 422
    submit = trace_of(exporter)["submit"]
    assert submit.attributes["error.type"] == "model.unknown"


def test_progress_is_an_event_of_its_stage(core, jobs, model, runner, exporter):
    traced = tracer_into(exporter)
    (build,) = jobs.submit(model, CompileRequest()).builds
    claim = claiming.take(core, build.id, "worker")
    with BuildTrace(replace(core, tracer=traced), claim) as trace:
        trace.hear(StageStarted(Stage.VERIFY))
        trace.hear(Progress(Stage.VERIFY, "point 1 of 3"))
    verify = next(span for span in exporter.get_finished_spans() if span.name == "verify")
    assert [event.name for event in verify.events] == ["point 1 of 3"]


def test_a_build_that_waits_for_an_equal_one_is_traced(tmp_path, exporter):
    begun, go = threading.Event(), threading.Event()

    def hold(cancelled: Callable[[], bool]) -> None:
        begun.set()
        assert go.wait(20)

    with live(tmp_path, tracer_into(exporter)) as api:
        api.compiler.behaviour = hold
        api.compile()
        assert begun.wait(20)
        second = api.compile().json()
        (waiting,) = api.services.jobs.get(second["id"]).builds
        assert claiming.take(api.services.core, waiting.id, "another") is None
        go.set()
        assert api.services.jobs.wait(second["id"], 20).builds[0].cached
    waited = [s for s in exporter.get_finished_spans() if s.name == "wait for an equal build"]
    assert [span.attributes["relaxd.job"] for span in waited] == [second["id"]]
    assert waited[0].attributes["relaxd.ending"] == "cached"


def test_a_released_build_waits_from_its_release(core, jobs, model, exporter, clock):
    traced = replace(core, tracer=tracer_into(exporter))
    (build,) = jobs.submit(model, CompileRequest()).builds
    assert claiming.take(traced, build.id, "first")
    clock.advance(100)
    assert sweeping.reclaim(traced) == 1
    clock.advance(7)
    with BuildTrace(traced, claiming.take(traced, build.id, "second")):
        pass
    queue = next(span for span in exporter.get_finished_spans() if span.name == "queue")
    assert (queue.end_time - queue.start_time) / 1e9 == pytest.approx(7, abs=0.001)


def test_health_checks_make_no_span(api, exporter):
    for path in ("/healthz", "/readyz", "/metrics"):
        api.http.get(path)
    assert not exporter.get_finished_spans()


def test_a_clients_decision_against_a_trace_holds(api, exporter):
    api.http.get("/v1/targets", headers={"traceparent": CLIENT[:-2] + "00"})
    assert not exporter.get_finished_spans()


def test_a_client_cannot_force_its_trace_on_a_service_that_keeps_none(tmp_path, exporter):
    with live(tmp_path, tracer_into(exporter, ratio=0)) as api:
        build_bundle(api)
    assert not exporter.get_finished_spans()


def test_a_malformed_traceparent_begins_a_trace_of_its_own(api, exporter):
    api.http.get("/v1/targets", headers={"traceparent": "00-" + "x" * 500})
    (span,) = exporter.get_finished_spans()
    assert span.parent is None


def test_long_texts_are_cut(exporter):
    span = tracer_into(exporter).begin("x", {"a": "b" * 5000})
    span.end()
    (result,) = exporter.get_finished_spans()
    assert len(result.attributes["a"]) == 1000


def test_without_traces_nothing_of_opentelemetry_is_imported():
    # FastAPI looks for the API of OpenTelemetry by itself; what sends traces is ours to load.
    check = (
        "import sys, service.processes.serve, service.workers.main;"
        "sent = ('opentelemetry.sdk', 'opentelemetry.exporter', 'service.adapters.opentelemetry');"
        "print([name for name in sys.modules if name.startswith(sent)])"
    )
    command = [sys.executable, "-c", check]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_without_traces_a_jobs_first_event_has_none(jobs, model):
    job = jobs.submit(model, CompileRequest())
    assert list(jobs.events(job.id)[0].data) == ["targets"]


def test_a_missing_extra_is_a_typed_error(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "service.adapters.opentelemetry_traces", None)
    settings = Settings(data_dir=tmp_path, traces_url="http://127.0.0.1:1/v1/traces")
    with pytest.raises(TracesUnavailable, match="not installed"):
        bootstrap.build(settings)


def test_spans_reach_a_collector_over_otlp(tmp_path):
    bodies: list[bytes] = []

    class Collector(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            bodies.append(self.rfile.read(int(self.headers["Content-Length"])))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Collector) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}/v1/traces"
        services = bootstrap.build(
            Settings(data_dir=tmp_path, traces_url=url), process="relaxd-worker"
        )
        services.core.tracer.begin("the span").end()
        services.close()
        server.shutdown()
    assert b"the span" in b"".join(bodies)
    assert b"relaxd-worker" in b"".join(bodies)

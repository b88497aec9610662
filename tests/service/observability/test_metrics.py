from prometheus_client import CollectorRegistry, generate_latest

from relaxd.contract.request import CompileRequest
from service.observability.metrics import JobCollector
from service.usecases import fleet


def test_the_figures_are_those_of_the_database(core, jobs, model, answer, clock):
    registry = CollectorRegistry()
    registry.register(JobCollector(core))
    for _ in range(2):
        answer(jobs.submit(model, CompileRequest()).builds[0].id)
    jobs.submit(model, CompileRequest(targets=("x86-64-v4",)))
    fleet.announce(core, "a", "host", ["native"], 1)
    clock.advance(5)
    text = generate_latest(registry).decode()
    for line in (
        'relaxd_builds_ended_total{ending="succeeded"} 1.0',
        'relaxd_builds_ended_total{ending="cached"} 1.0',
        'relaxd_builds_ended_total{ending="failed"} 0.0',
        'relaxd_builds{state="queued"} 1.0',
        'relaxd_builds{state="running"} 0.0',
        "relaxd_queue_oldest_seconds 5.0",
        "relaxd_workers 1.0",
    ):
        assert line in text.splitlines()

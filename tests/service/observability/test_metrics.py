import os
import subprocess
import sys
from pathlib import Path

from prometheus_client import CollectorRegistry, generate_latest

from relaxd.contract.request import CompileRequest
from service.observability.metrics import SHARED, JobCollector, gather
from service.usecases.builds import fleet


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
        "relaxd_worker_slots 1.0",
    ):
        assert line in text.splitlines()


MEASURE = """
from prometheus_client import CollectorRegistry
from service.observability.metrics import WorkerMetrics
metrics = WorkerMetrics(CollectorRegistry())
metrics.seconds.labels("native", "succeeded").observe(7)
metrics.reclaimed.inc()
"""


def test_what_processes_measured_is_added_up_after_their_end(tmp_path):
    for _ in range(2):
        environment = {**os.environ, SHARED: str(tmp_path)}
        command = [sys.executable, "-c", MEASURE]
        subprocess.run(command, cwd=Path(__file__).parents[3], env=environment, check=True)
    registry = CollectorRegistry()
    gather(registry, tmp_path)
    text = generate_latest(registry).decode()
    series = 'relaxd_build_seconds_bucket{ending="succeeded",le="10.0",target="native"} 2.0'
    assert series in text.splitlines()
    assert "relaxd_builds_reclaimed_total 2.0" in text.splitlines()

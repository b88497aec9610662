"""Worker processes over a real broker and database, killed in all the ways a machine kills them."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from uuid import uuid4

import psutil
import pytest

from relaxd.contract.request import CompileRequest
from relaxd.contract.states import State
from service.bootstrap import Services, build
from service.settings import Settings
from tests.service.servers import fresh_database

ROOT = Path(__file__).parents[2]
PATIENCE_S = 60


@pytest.fixture(params=["embedded", pytest.param("scaled", marks=pytest.mark.scaled)])
def settings(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Settings]:
    quick = {"data_dir": tmp_path, "lease_s": 2, "sweep_s": 0.3, "ring_after_s": 0.5, "max_attempts": 5}
    if request.param == "embedded":
        yield Settings(**quick)
    else:
        broker = request.getfixturevalue("redis_url")
        with fresh_database(request.getfixturevalue("postgres"), f"test_{uuid4().hex}") as url:
            yield Settings(**quick, database_url=url, broker_url=broker)


@pytest.fixture
def services(settings: Settings) -> Iterator[Services]:
    services = build(settings)
    yield services
    services.close()


@pytest.fixture
def start(settings: Settings, tmp_path: Path) -> Iterator[Callable[[], subprocess.Popen[bytes]]]:
    """Start a worker; all are killed at the end."""
    started = []

    def start() -> subprocess.Popen[bytes]:
        environment = {**os.environ, **settings.environment(), "PYTHONPATH": str(ROOT)}
        with (tmp_path / f"worker{len(started)}.log").open("wb") as log:
            command = [sys.executable, "-m", "tests.service.worker_process"]
            started.append(subprocess.Popen(command, env=environment, cwd=ROOT, stdout=log, stderr=subprocess.STDOUT))
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.wait()
    for log in sorted(tmp_path.glob("worker*.log")):
        print(log.name, log.read_text()[-4000:])


@pytest.fixture
def ledger(tmp_path: Path) -> Path:
    path = tmp_path / "ledger"
    path.touch()
    return path


def model_of(services: Services, ledger: Path, seconds: float) -> str:
    return services.store.blobs.put(json.dumps({"ledger": str(ledger), "seconds": seconds}).encode()).digest


def compiles(ledger: Path) -> int:
    return len(ledger.read_text().splitlines())


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, "it does not come true"
        time.sleep(0.05)


def test_fifty_equal_submissions_compile_once(services, start, ledger):
    model = model_of(services, ledger, 0.5)
    start(), start()
    with ThreadPoolExecutor(16) as pool:
        jobs = list(pool.map(lambda _: services.jobs.submit(model, CompileRequest()), range(50)))
    ended = [services.jobs.wait(job.id, PATIENCE_S) for job in jobs]
    assert {job.state for job in ended} == {State.SUCCEEDED}
    assert len({job.builds[0].artifact for job in ended}) == 1
    assert sorted(job.builds[0].cached for job in ended) == [False] + [True] * 49
    assert compiles(ledger) == 1
    again = services.jobs.wait(services.jobs.submit(model, CompileRequest()).id, PATIENCE_S)
    assert (again.state, again.builds[0].cached, compiles(ledger)) == (State.SUCCEEDED, True, 1)


def test_a_job_outlives_its_killed_worker(services, start, ledger):
    job = services.jobs.submit(model_of(services, ledger, 1.5), CompileRequest())
    first = start()
    until(lambda: compiles(ledger) == 1)
    start()
    first.kill()
    ended = services.jobs.wait(job.id, PATIENCE_S)
    assert (ended.state, ended.builds[0].attempts, compiles(ledger)) == (State.SUCCEEDED, 2, 2)


def test_no_job_is_lost_when_everything_is_killed(services, start, ledger, settings):
    running = services.jobs.submit(model_of(services, ledger, 1), CompileRequest())
    worker = start()
    until(lambda: compiles(ledger) == 1)
    waiting = services.jobs.submit(model_of(services, ledger, 1), CompileRequest())
    other = services.jobs.submit(model_of(services, ledger, 0), CompileRequest(targets=("x86-64-v2", "x86-64-v3")))
    worker.kill()
    worker.wait()
    services.close()
    _lose_doorbells(settings)
    start()
    reopened = build(settings)
    for job in (running, waiting, other):
        assert reopened.jobs.wait(job.id, PATIENCE_S).state is State.SUCCEEDED
    reopened.close()
    assert compiles(ledger) == 4, "one lost, one repeated, and one each for the two targets"


def _lose_doorbells(settings: Settings) -> None:
    if settings.broker_url is None:
        for message in settings.spool_dir.rglob("*"):
            if message.is_file():
                message.unlink()
    else:
        import redis

        with redis.Redis.from_url(settings.broker_url) as client:
            client.flushall()


def test_cancelling_kills_the_compile_process_and_its_folder(services, start, ledger, settings):
    job = services.jobs.submit(model_of(services, ledger, PATIENCE_S), CompileRequest())
    worker = start()
    until(lambda: compiles(ledger) == 1)
    assert psutil.Process(worker.pid).children()
    assert services.jobs.cancel(job.id).state is State.RUNNING
    assert services.jobs.wait(job.id, PATIENCE_S).state is State.CANCELLED
    until(lambda: not psutil.Process(worker.pid).children())
    until(lambda: not list(settings.work_dir.glob("*/*")))


def test_a_terminated_worker_gives_its_build_back_and_leaves_nothing(services, start, ledger, settings):
    job = services.jobs.submit(model_of(services, ledger, 1.5), CompileRequest())
    worker = start()
    until(lambda: compiles(ledger) == 1)
    worker.send_signal(signal.SIGTERM)
    assert worker.wait(PATIENCE_S) == 0
    assert services.jobs.get(job.id).state is State.QUEUED
    assert services.jobs.get(job.id).builds[0].note == "no worker is running; start one with `relaxd worker`"
    assert [path.name for path in settings.work_dir.iterdir()] == [".lock"]
    start()
    ended = services.jobs.wait(job.id, PATIENCE_S)
    assert (ended.state, ended.builds[0].attempts) == (State.SUCCEEDED, 1)

"""Worker processes over a real broker and database, killed in all the ways a machine kills them."""

import json
import signal
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import psutil
import psycopg
import pytest

from relaxd.contract.request import CompileRequest
from relaxd.contract.states import State
from service.bootstrap import Services, build
from service.settings import Settings
from tests.service.servers import free_port, redis_server

pytestmark = pytest.mark.slow

PATIENCE_S = 60
FAKE = "tests.service.worker_process"


@pytest.fixture
def ledger(tmp_path: Path) -> Path:
    path = tmp_path / "ledger"
    path.touch()
    return path


def model_of(services: Services, ledger: Path, seconds: float) -> str:
    return services.store.blobs.put(
        json.dumps({"ledger": str(ledger), "seconds": seconds}).encode()
    ).digest


def compiles(ledger: Path) -> int:
    return len(ledger.read_text().splitlines())


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, "it does not come true"
        time.sleep(0.05)


def test_no_job_is_lost_when_everything_is_killed(services, start, ledger, deployment):
    running = services.jobs.submit(model_of(services, ledger, 1), CompileRequest())
    worker = start(FAKE)
    until(lambda: compiles(ledger) == 1)
    waiting = services.jobs.submit(model_of(services, ledger, 1), CompileRequest())
    other = services.jobs.submit(
        model_of(services, ledger, 0), CompileRequest(targets=("x86-64-v2", "x86-64-v3"))
    )
    worker.kill()
    worker.wait()
    services.close()
    _lose_doorbells(deployment)
    rescuer = start(FAKE)
    with closing(build(deployment)) as reopened:
        for job in (running, waiting, other):
            ended = reopened.jobs.wait(job.id, PATIENCE_S)
            if ended.state is not State.SUCCEEDED:
                rescuer.send_signal(signal.SIGUSR1)
                time.sleep(1)
            assert ended.state is State.SUCCEEDED
    assert compiles(ledger) == 4, "one lost, one repeated, and one each for the two targets"


@pytest.mark.scaled
@pytest.mark.parametrize("deployment", ["scaled"], indirect=True)
def test_a_worker_whose_sweep_stalls_ends_itself(services, start, deployment, tmp_path):
    with psycopg.connect(deployment.database_url) as connection:
        connection.execute("LOCK TABLE workers")
        worker = start(FAKE, deployment.model_copy(update={"sweep_limit_s": 1}))
        assert worker.wait(PATIENCE_S) == 1
    assert "in announce" in (tmp_path / "worker0.log").read_text()


def _lose_doorbells(deployment: Settings) -> None:
    if deployment.broker_url is None:
        for message in deployment.spool_dir.rglob("*"):
            if message.is_file():
                message.unlink()
    else:
        import redis

        with redis.Redis.from_url(deployment.broker_url) as client:
            client.flushall()


def test_cancelling_kills_the_compile_process_and_its_folder(services, start, ledger, deployment):
    job = services.jobs.submit(model_of(services, ledger, PATIENCE_S), CompileRequest())
    worker = start(FAKE)
    until(lambda: compiles(ledger) == 1)
    assert psutil.Process(worker.pid).children()
    assert services.jobs.cancel(job.id).state is State.RUNNING
    assert services.jobs.wait(job.id, PATIENCE_S).state is State.CANCELLED
    until(lambda: not psutil.Process(worker.pid).children())
    until(lambda: not list(deployment.work_dir.glob("*/*")))


def test_a_terminated_worker_gives_its_build_back_and_leaves_nothing(
    services, start, ledger, deployment
):
    job = services.jobs.submit(model_of(services, ledger, 1.5), CompileRequest())
    worker = start(FAKE, deployment.model_copy(update={"drain_s": 0.1}))
    until(lambda: compiles(ledger) == 1)
    worker.send_signal(signal.SIGTERM)
    assert worker.wait(PATIENCE_S) == 0
    assert services.jobs.get(job.id).state is State.QUEUED
    assert (
        services.jobs.get(job.id).builds[0].note
        == "no worker is running; start one with `relaxd worker`"
    )
    assert [path.name for path in deployment.work_dir.iterdir()] == [".lock"]
    start(FAKE)
    ended = services.jobs.wait(job.id, PATIENCE_S)
    assert (ended.state, ended.builds[0].attempts) == (State.SUCCEEDED, 1)


def test_a_terminated_worker_ends_its_build_within_the_limit_and_takes_no_other(
    services, start, ledger, deployment
):
    running = services.jobs.submit(model_of(services, ledger, 2), CompileRequest())
    worker = start(FAKE, deployment.model_copy(update={"drain_s": PATIENCE_S}))
    until(lambda: compiles(ledger) == 1)
    worker.send_signal(signal.SIGTERM)
    # Given once the worker has heard the signal, so that it would take it were it not draining.
    time.sleep(0.5)
    later = services.jobs.submit(model_of(services, ledger, 0), CompileRequest())
    assert worker.wait(PATIENCE_S) == 0
    ended = services.jobs.get(running.id)
    assert (ended.state, ended.builds[0].attempts) == (State.SUCCEEDED, 1)
    assert services.jobs.get(later.id).state is State.QUEUED
    assert compiles(ledger) == 1


@pytest.mark.parametrize("deployment", ["embedded"], indirect=True)
def test_a_killed_worker_leaves_nothing_once_another_has_started(
    services, start, ledger, deployment, tmp_path, monkeypatch
):
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    services.jobs.submit(model_of(services, ledger, PATIENCE_S), CompileRequest())
    worker = start(FAKE)
    until(lambda: compiles(ledger) == 1)
    worker.kill()
    worker.wait()
    left = set(deployment.work_dir.glob("*/*"))
    assert left
    assert list(temporary.iterdir()) == []
    start(FAKE)
    until(lambda: not any(path.exists() for path in left))


@pytest.mark.scaled
@pytest.mark.parametrize("deployment", ["embedded"], indirect=True)
def test_no_job_is_lost_while_the_broker_is_away(deployment, start, ledger):
    port = free_port()
    with redis_server(port) as url:
        settings = deployment.model_copy(update={"broker_url": url})
        services = build(settings)
        worker = start(FAKE, settings)
        assert (
            services.jobs.wait(
                services.jobs.submit(model_of(services, ledger, 0), CompileRequest()).id, PATIENCE_S
            ).state
            is State.SUCCEEDED
        )
        running = services.jobs.submit(model_of(services, ledger, 1), CompileRequest())
        until(lambda: compiles(ledger) == 2)
    meanwhile = services.jobs.submit(model_of(services, ledger, 0.1), CompileRequest())
    for job in (running, meanwhile):
        assert services.jobs.wait(job.id, PATIENCE_S).state is State.SUCCEEDED, (
            "a worker at work goes on without a broker"
        )
    until(lambda: not psutil.Process(worker.pid).children())
    unheard = services.jobs.submit(model_of(services, ledger, 0.2), CompileRequest())
    with redis_server(port):
        assert services.jobs.wait(unheard.id, PATIENCE_S).state is State.SUCCEEDED
    services.close()

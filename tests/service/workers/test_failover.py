"""A service whose database or broker fails over: primaries are killed, replicas take over."""

import signal
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest
import redis
from sqlalchemy import make_url

from relaxd.contract.request import CompileRequest
from relaxd.contract.states import State
from service.adapters.celery_doorbell import RING_S, CeleryDoorbell, celery_app
from service.bootstrap import build
from service.errors import DatabaseUnavailable
from service.settings import Settings
from service.usecases.builds import claiming
from tests.service.adapters.test_celery_doorbell import consume
from tests.service.fakes import FakeCompiler
from tests.service.servers import (
    Server,
    free_port,
    postgres_process,
    postgres_replica,
    redis_process,
    redis_sentinel,
)
from tests.service.workers.test_processes import FAKE, model_of

pytestmark = [pytest.mark.slow, pytest.mark.scaled]

PATIENCE_S = 240
NAME = "jobs"


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, "it does not come true"
        time.sleep(0.1)


def has_one_job(replica: psycopg.Connection) -> bool:
    """Tell if the replica has replayed the first job; it may not have the table yet."""
    try:
        return replica.execute("SELECT count(*) FROM jobs").fetchone() == (1,)
    except psycopg.errors.UndefinedTable:
        return False


def test_the_second_host_of_the_url_takes_over(tmp_path: Path) -> None:
    with postgres_process() as primary, postgres_replica(primary) as replica:
        hosts = ",".join(f"127.0.0.1:{make_url(each.url).port}" for each in (replica, primary))
        url = f"postgresql://relaxd@{hosts}/postgres"
        settings = Settings(data_dir=tmp_path, database_url=url)
        with closing(build(settings, compiler=FakeCompiler())) as services:
            model = services.store.blobs.put(b"a model").digest
            before = services.jobs.submit(model, CompileRequest())
            with psycopg.connect(replica.url, autocommit=True) as operator:
                until(lambda: has_one_job(operator))
                primary.end(signal.SIGKILL)
                with pytest.raises(DatabaseUnavailable):
                    services.jobs.submit(model, CompileRequest())
                operator.execute("SELECT pg_promote()")
            after = services.jobs.submit(model, CompileRequest())
            assert {job.id for job in services.jobs.list()} == {before.id, after.id}
            claim = claiming.take(services.core, before.builds[0].id, "worker")
            assert claim is not None


def test_a_doorbell_rings_at_the_primary_that_sentinels_name(tmp_path: Path) -> None:
    with sentinels() as (primary, heir, url):
        app = celery_app(Settings(data_dir=tmp_path, broker_url=url), patience_s=RING_S)
        doorbell = CeleryDoorbell(app)
        doorbell.ring("first", "native")
        assert doorbell.trouble is None
        assert consume(app, "relaxd.native", PATIENCE_S) == [["first"]]
        primary.end(signal.SIGKILL)
        until(lambda: heir.role()[0] == b"master")

        def is_rung() -> bool:
            doorbell.ring("second", "native")
            return doorbell.trouble is None

        until(is_rung)
        assert heir.llen("relaxd.native") == 1
        assert consume(app, "relaxd.native", PATIENCE_S) == [["second"]]
        app.close()


@contextmanager
def sentinels() -> Iterator[tuple[Server, redis.Redis, str]]:
    """A primary, a client of its replica, and the URL of Sentinels, the first of which is away."""
    with redis_process() as primary:
        port = make_url(primary.url).port or 0
        with (
            redis_process(None, "--replicaof", f"127.0.0.1 {port}") as replica,
            redis_sentinel(port, NAME) as sentinel,
            redis.Redis.from_url(replica.url) as heir,
            redis.Redis.from_url(sentinel.url) as watch,
        ):
            until(lambda: len(watch.sentinel_slaves(NAME)) == 1)
            addresses = f"127.0.0.1:{free_port()},127.0.0.1:{make_url(sentinel.url).port}"
            yield primary, heir, f"sentinel://{addresses}/0?master_name={NAME}"


@pytest.mark.parametrize("deployment", ["embedded"], indirect=True)
def test_a_worker_hears_of_builds_from_the_new_primary(
    deployment: Settings, start: Callable[..., Any], tmp_path: Path
) -> None:
    ledger = tmp_path / "ledger"
    ledger.touch()
    with sentinels() as (primary, heir, url):
        settings = deployment.model_copy(update={"broker_url": url})
        with closing(build(settings)) as services:
            worker = start(FAKE, settings)
            for seconds in (0, 0.1):
                job = services.jobs.submit(model_of(services, ledger, seconds), CompileRequest())
                assert services.jobs.wait(job.id, PATIENCE_S).state is State.SUCCEEDED
                primary.end(signal.SIGKILL)
                until(lambda: heir.role()[0] == b"master")
            assert worker.poll() is None

from contextlib import ExitStack
from dataclasses import replace
from threading import Timer

import pytest
import structlog
from prometheus_client import CollectorRegistry

from compiler.host.capabilities import Capabilities
from relaxd.contract.request import CompileRequest
from relaxd.contract.states import State
from service.domain import Kind
from service.errors import DatabaseUnavailable, InvalidSettings
from service.usecases.builds import claiming, fleet, scheduling
from service.workers.worker import Worker
from tests.service.servers import read_only


@pytest.fixture
def registry():
    return CollectorRegistry()


@pytest.fixture
def worker(core, registry):
    worker = Worker(core, slots=1, registry=registry)
    yield worker
    worker.close()


def test_a_worker_announces_what_it_compiles_and_says_goodbye(core, jobs, registry):
    worker = Worker(core, slots=2, registry=registry)
    worker.sweep()
    compiles = set(worker.capabilities) - {Kind.INSPECT.value}
    assert {target["name"]: target["workers"] for target in jobs.targets()} == {
        name: [worker.name] for name in compiles
    }
    worker.close()
    assert all(target["workers"] == [] for target in jobs.targets())


def test_the_log_has_the_sandbox_beside_the_lines_own_level(core, registry):
    with structlog.testing.capture_logs() as lines:
        Worker(core, slots=1, registry=registry).close()
    (probed,) = [line for line in lines if line["event"] == "sandbox probed"]
    assert probed["sandbox"] == core.compiler.capabilities().sandbox.value
    assert "level" not in probed


def test_one_round_takes_back_lost_builds_and_rings_for_forgotten_ones(
    core, jobs, model, clock, doorbell, worker, registry
):
    lost = jobs.submit(model, CompileRequest()).builds[0]
    claiming.take(core, lost.id, "silent")
    clock.advance(core.settings.lease_s + 1)
    worker.sweep()
    assert jobs.get(lost.job_id).state is State.QUEUED
    assert registry.get_sample_value("relaxd_builds_reclaimed_total") == 1
    clock.advance(core.settings.ring_after_s)
    worker.sweep()
    assert registry.get_sample_value("relaxd_doorbells_repeated_total") == 1
    assert doorbell.rings == [lost.id] * 3


def test_a_busy_worker_rings_for_nothing(core, jobs, model, clock, doorbell, compiler, worker):
    forgotten = jobs.submit(model, CompileRequest(targets=("x86-64-v2",))).builds[0]
    clock.advance(1)
    busy = jobs.submit(model, CompileRequest()).builds[0]
    clock.advance(core.settings.ring_after_s)
    doorbell.rings.clear()
    received = []

    def behaviour(cancelled):
        worker.sweep()
        received.extend(doorbell.rings)

    compiler.behaviour = behaviour
    worker.answer(busy.id)
    assert received == []
    assert jobs.get(forgotten.job_id).state is State.SUCCEEDED, (
        "having become free, it takes what it has not been rung for"
    )


def test_sweeping_survives_a_database_that_is_away(worker):
    rounds = []

    def sweep():
        rounds.append(len(rounds))
        raise DatabaseUnavailable("gone")

    worker.sweep = sweep
    worker.sweep_until_drained(alive=lambda: len(rounds) < 1)
    assert rounds == [0]


def test_a_worker_that_shuts_down_takes_nothing_more(jobs, model, compiler, worker):
    worker.drain()
    worker.answer(jobs.submit(model, CompileRequest()).builds[0].id)
    assert compiler.jobs == []


def test_build_times_are_measured_by_target_and_ending(jobs, model, worker, registry):
    for _ in range(2):
        worker.answer(jobs.submit(model, CompileRequest()).builds[0].id)
    counts = [
        registry.get_sample_value(
            "relaxd_build_seconds_count", {"target": "native", "ending": ending}
        )
        for ending in ("succeeded", "cached")
    ]
    assert counts == [1, 1]


def test_a_free_worker_goes_through_the_queue_in_order_and_leaves_the_waiting_alone(
    core, jobs, clock, model, compiler, worker
):
    stored = jobs.submit(model, CompileRequest()).builds[0]
    waiting = jobs.submit(model, CompileRequest()).builds[0]
    claiming.take(core, stored.id, "another")
    others = []
    for content in (b"x", b"y", b"z"):
        clock.advance(1)
        others.append(jobs.submit(core.store.blobs.put(content).digest, CompileRequest()).builds[0])
    worker.answer(others[0].id)
    assert [jobs.get(build.job_id).state for build in others] == [State.SUCCEEDED] * 3
    assert [job.model_digest for job in compiler.jobs] == [
        jobs.get(build.job_id).model for build in others
    ]
    assert jobs.get(waiting.job_id).builds[0].waiting_on == stored.id


def test_a_database_that_is_away_ends_an_answer_and_not_the_worker(
    jobs, model, worker, monkeypatch
):
    build = jobs.submit(model, CompileRequest()).builds[0]
    real, calls = claiming.take, []

    def take(*arguments):
        calls.append(arguments)
        if len(calls) == 1:
            raise DatabaseUnavailable("restarting")
        return real(*arguments)

    monkeypatch.setattr(claiming, "take", take)
    worker.answer(build.id)
    assert jobs.get(build.job_id).state is State.QUEUED
    worker.answer(build.id)
    assert jobs.get(build.job_id).state is State.SUCCEEDED


def test_a_worker_ends_without_its_database(core, registry, monkeypatch):
    worker = Worker(core, slots=1, registry=registry)

    def depart(core, name):
        raise DatabaseUnavailable("gone")

    monkeypatch.setattr(fleet, "depart", depart)
    worker.close()
    assert not worker.scratch.exists()


def test_a_build_in_hand_outlives_a_database_that_turns_read_only(
    core, jobs, model, compiler, worker, database
):
    if database == "sqlite":
        pytest.skip("only a server fails over")
    url = core.db.url.render_as_string(False)
    job, ended = jobs.submit(model, CompileRequest()), []

    def behaviour(cancelled):
        until = ExitStack()
        until.enter_context(read_only(url))
        worker.sweep_until_drained(alive=lambda: len(ended) < 1 and not ended.append(1))
        with pytest.raises(DatabaseUnavailable):
            jobs.submit(model, CompileRequest(targets=("aarch64",)))
        assert jobs.get(job.id).state is State.RUNNING, "it can still be read"
        Timer(1.5, until.close).start()  # the build ends before

    compiler.behaviour = behaviour
    worker.answer(job.builds[0].id)
    assert jobs.get(job.id).state is State.SUCCEEDED
    assert len(compiler.jobs) == 1, "no second attempt"


def limit_core(core, capabilities):
    """The core with RELAXD_CAPABILITIES set."""
    return replace(core, settings=core.settings.model_copy(update={"capabilities": capabilities}))


def test_a_worker_takes_builds_for_its_capabilities_alone(core, jobs, model, registry):
    later = jobs.submit(model, CompileRequest(targets=("x86-64-v2",)))
    with ExitStack() as stack:
        worker = Worker(limit_core(core, "aarch64*,riscv64"), slots=1, registry=registry)
        stack.callback(worker.close)
        assert worker.capabilities == ("aarch64", "aarch64-v8.2", "riscv64")
        taken = jobs.submit(model, CompileRequest(targets=("riscv64",)))
        worker.answer(taken.builds[0].id)
        assert jobs.get(taken.id).state is State.SUCCEEDED
        assert jobs.get(later.id).state is State.QUEUED


def test_a_worker_without_any_of_its_capabilities_ends_at_once(core, registry, compiler):
    compiler.capabilities = lambda: Capabilities(("native", "aarch64"))
    with pytest.raises(InvalidSettings, match="has none of cuda-sm80") as refused:
        Worker(limit_core(core, "cuda-*"), slots=1, registry=registry)
    assert "native, aarch64, inspect" in refused.value.hint


def test_a_worker_for_one_build_ends_after_it(core, jobs, model, worker):
    for n in (1, 2):
        jobs.submit(model, CompileRequest.of(dims={"n": n}))
    worker.answer_once(60)
    assert {job.state for job in jobs.list()} == {State.SUCCEEDED, State.QUEUED}
    worker.answer_once(60)
    worker.answer_once(0.01)
    assert {job.state for job in jobs.list()} == {State.SUCCEEDED}


def test_a_worker_for_one_build_that_is_to_end_takes_none(core, jobs, model, worker):
    job = jobs.submit(model, CompileRequest())
    worker.drain()
    worker.answer_once(60)
    assert jobs.get(job.id).state is State.QUEUED


def test_an_emulating_worker_leaves_fresh_builds_to_one_that_executes_them(
    core, jobs, model, clock, doorbell, worker
):
    fleet.announce(core, "arm", "host", ["aarch64"], 1, {"aarch64": "executed"})
    worker.sweep()
    build = jobs.submit(model, CompileRequest(targets=("aarch64",))).builds[0]
    doorbell.rings.clear()
    worker.answer(build.id)
    clock.advance(core.settings.ring_after_s)
    worker.sweep()
    assert (jobs.get(build.job_id).state, doorbell.rings) == (State.QUEUED, [])
    clock.advance(scheduling.PREFER_S)
    fleet.announce(core, "arm", "host", ["aarch64"], 1, {"aarch64": "executed"})
    worker.sweep()
    assert doorbell.rings == [build.id]
    worker.answer(build.id)
    assert jobs.get(build.job_id).state is State.SUCCEEDED

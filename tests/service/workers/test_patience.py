"""A full store, or a database that is away: builds wait with their work done, and lose no
attempt.
"""

import pytest

from artifacts.errors import StorageFailed, StoreFull
from artifacts.local import LocalStore
from relaxd.contract.request import CompileRequest
from relaxd.contract.states import State
from service.domain import EventType
from service.errors import DatabaseUnavailable
from service.usecases.builds import ending, reporting, results
from service.workers import patience as module
from service.workers.runner import WITHOUT_STORE


@pytest.fixture
def core(core, monkeypatch):
    monkeypatch.setattr(module, "FIRST_PAUSE_S", 0.05)
    monkeypatch.setattr(module, "LONGEST_PAUSE_S", 0.1)
    changed = core.settings.model_copy(update={"store_patience_s": 0.3})
    object.__setattr__(core, "settings", changed)
    return core


def failing(monkeypatch, error, times):
    """The next so many puts fail."""
    real, left = LocalStore.put, [times]

    def put(store, data, expected=None):
        left[0] -= 1
        if left[0] >= 0:
            raise error
        return real(store, data, expected)

    monkeypatch.setattr(LocalStore, "put", put)
    return left


def submit_job(jobs, model):
    return jobs.submit(model, CompileRequest()).builds[0]


def now(jobs, build):
    (result,) = jobs.get(build.job_id).builds
    return result


@pytest.mark.parametrize("error", [StoreFull("no room"), StorageFailed("I/O error")])
def test_a_build_waits_with_its_work_done(jobs, model, answer, compiler, monkeypatch, error):
    build = submit_job(jobs, model)
    failing(monkeypatch, error, 2)
    answer(build.id)
    assert (now(jobs, build).state, now(jobs, build).attempts) == (State.SUCCEEDED, 1)
    assert len(compiler.jobs) == 1, "it was compiled once"
    lines = [
        event.data["line"]
        for event in jobs.events(build.job_id)
        if event.type is EventType.BUILD_LOG
    ]
    assert sum("for the store" in line for line in lines) == 2


def test_a_store_that_stays_full_costs_no_attempt(jobs, model, answer, monkeypatch, endings):
    build = submit_job(jobs, model)
    left = failing(monkeypatch, StoreFull("no room"), 10**6)
    for _ in range(4):  # more than max_attempts
        answer(build.id)
        assert (now(jobs, build).state, now(jobs, build).attempts) == (State.QUEUED, 0)
    assert set(endings) == {WITHOUT_STORE}
    left[0] = 0
    answer(build.id)
    assert now(jobs, build).state is State.SUCCEEDED


def test_a_store_that_stays_away_fails_the_build_in_the_end(jobs, model, answer, monkeypatch):
    build = submit_job(jobs, model)
    failing(monkeypatch, StorageFailed("I/O error"), 10**6)
    answer(build.id), answer(build.id)
    done = now(jobs, build)
    assert (done.state, done.error.code) == (State.FAILED, "store.unavailable")


def away(monkeypatch, position, name, times):
    """The next so many calls of the function fail; those that were made."""
    real, calls = getattr(position, name), []

    def call(*arguments, **options):
        calls.append(arguments)
        if len(calls) <= times:
            raise DatabaseUnavailable("restarting")
        return real(*arguments, **options)

    monkeypatch.setattr(position, name, call)
    return calls


def test_an_end_waits_for_the_database(jobs, model, answer, compiler, monkeypatch, endings):
    build = submit_job(jobs, model)
    calls = away(monkeypatch, ending, "finish", 2)
    answer(build.id)
    assert (now(jobs, build).state, now(jobs, build).attempts) == (State.SUCCEEDED, 1)
    assert (len(calls), len(compiler.jobs), endings) == (3, 1, ["succeeded"])


def test_a_build_that_loses_the_database_on_its_way_loses_no_attempt(
    jobs, model, answer, monkeypatch, endings
):
    build = submit_job(jobs, model)
    away(monkeypatch, results, "known_outcome", 1)
    calls = away(monkeypatch, ending, "release", 1)
    answer(build.id)
    assert (now(jobs, build).state, now(jobs, build).attempts) == (State.QUEUED, 0)
    assert (len(calls), endings) == (2, ["released"])


def test_a_worker_that_shuts_down_waits_for_no_database(jobs, model, answer, monkeypatch, shutdown):
    build = submit_job(jobs, model)
    shutdown.set()
    calls = away(monkeypatch, ending, "finish", 10**6)
    with pytest.raises(DatabaseUnavailable):
        answer(build.id)
    assert len(calls) == 1


def test_nobody_waits_beyond_the_lease(core, jobs, model, answer, monkeypatch):
    changed = core.settings.model_copy(update={"lease_s": 0.3})
    object.__setattr__(core, "settings", changed)
    build = submit_job(jobs, model)
    away(monkeypatch, reporting, "beat", 10**6)
    away(monkeypatch, ending, "finish", 10**6)
    with pytest.raises(DatabaseUnavailable):
        answer(build.id)

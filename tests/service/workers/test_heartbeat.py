"""The heartbeat of a build, and when it says that the build must stop."""

import threading
import time
from collections.abc import Callable

import pytest

from compiler.isolation.messages import Log, Progress, StageStarted
from relaxd.contract.request import CompileRequest
from relaxd.contract.states import Stage
from service.domain import Claim, EventType
from service.errors import DatabaseUnavailable, StaleClaim
from service.usecases.builds import claiming, reporting, sweeping
from service.workers import heartbeat
from service.workers.heartbeat import Pulse, Stop


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heartbeat, "_TICK_S", 0.02)


@pytest.fixture
def claim(core, jobs, model) -> Claim:
    (build,) = jobs.submit(model, CompileRequest()).builds
    taken = claiming.take(core, build.id, "worker")
    assert taken
    return taken


def until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def record_beat(jobs, claim: Claim) -> list[dict]:
    kinds = (EventType.BUILD_STAGE, EventType.BUILD_LOG)
    return [event.data for event in jobs.events(claim.job_id) if event.type in kinds]


def test_a_stage_is_told_at_once_and_lines_with_it(core, jobs, claim) -> None:
    pulse = Pulse(core, claim, threading.Event())
    pulse.hear(Log("one"))
    assert record_beat(jobs, claim) == []
    pulse.hear(StageStarted(Stage.LINK))
    assert record_beat(jobs, claim) == [{"line": "one"}, {"stage": "link"}]


def test_many_lines_do_not_pile_up(core, jobs, claim) -> None:
    pulse = Pulse(core, claim, threading.Event())
    for index in range(heartbeat._BATCH):
        pulse.hear(Log(str(index)))
    assert len(record_beat(jobs, claim)) == heartbeat._BATCH


def test_progress_is_told_within_a_beat(core, jobs, claim) -> None:
    with Pulse(core, claim, threading.Event()) as pulse:
        pulse.hear(Progress(Stage.VERIFY, "2 of 5"))
        until(lambda: record_beat(jobs, claim))
    assert record_beat(jobs, claim) == [{"stage": "verify", "message": "2 of 5"}]


def test_counts_are_told_where_a_step_has_some(core, jobs, claim) -> None:
    pulse = Pulse(core, claim, threading.Event())
    pulse.hear(Progress(Stage.VERIFY, "library at 0 of 8 shapes", 0, 8))
    pulse.hear(Progress(Stage.VERIFY, "library at 2 of 8 shapes", 2, 8, 4.5))
    pulse.flush()
    first, second = record_beat(jobs, claim)
    assert first == {
        "stage": "verify",
        "message": "library at 0 of 8 shapes",
        "done": 0,
        "total": 8,
    }
    assert (second["done"], second["total"], second["seconds_left"]) == (2, 8, 4.5)


def test_events_are_kept_while_the_database_is_away(core, jobs, claim, monkeypatch) -> None:
    pulse = Pulse(core, claim, threading.Event())

    def away(*arguments) -> None:
        raise DatabaseUnavailable("no route")

    with monkeypatch.context() as patch:
        patch.setattr(reporting, "progress", away)
        pulse.hear(Log("one"))
        pulse.flush()
    pulse.hear(Log("two"))
    pulse.flush()
    pulse.flush()
    assert record_beat(jobs, claim) == [{"line": "one"}, {"line": "two"}]


def test_a_cancelled_job_stops_the_build(core, jobs, claim) -> None:
    with Pulse(core, claim, threading.Event()) as pulse:
        assert pulse.stop is None
        jobs.cancel(claim.job_id)
        until(lambda: pulse.stop)
    assert pulse.stop is Stop.CANCELLED


def test_a_lost_claim_stops_the_build(core, claim, clock, settings) -> None:
    clock.advance(settings.lease_s + 1)
    assert sweeping.reclaim(core) == 1
    with Pulse(core, claim, threading.Event()) as pulse:
        until(lambda: pulse.stop)
        assert pulse.stop is Stop.LOST
        pulse.hear(Log("nobody listens"))
        with pytest.raises(StaleClaim):
            pulse.flush()


def test_the_first_reason_stays(core, jobs, claim) -> None:
    shutdown = threading.Event()
    with Pulse(core, claim, shutdown) as pulse:
        shutdown.set()
        assert pulse.stop is Stop.SHUTDOWN
        jobs.cancel(claim.job_id)
        time.sleep(0.1)
        assert pulse.stop is Stop.SHUTDOWN

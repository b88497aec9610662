"""`relaxd compile --server` where no worker builds for a target, and where builds take long."""

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from compiler.errors import CompileCancelled
from compiler.targets import resolve
from relaxd.cli import following
from relaxd.client import transport
from service.domain import Kind
from service.usecases.builds import fleet, sweeping
from tests.e2e.deployment import until
from tests.service.live import Live, live

TARGETS = ("--target", "x86-64-v2", "--target", "x86-64-v3")


@pytest.fixture
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    """A service without workers."""
    with live(tmp_path_factory.mktemp("api"), lease_s=600) as running:
        yield running


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transport, "LONGEST_PAUSE", 0.01)


def announce(api: Live, *targets: str) -> None:
    able = [resolve(target).capability for target in targets]
    fleet.announce(api.services.core, "w", "here", [*able, Kind.INSPECT.value], 1)


def test_a_job_that_nobody_would_build_is_refused(served: Any, model: str, api: Live) -> None:
    ended = served("compile", model, *TARGETS)
    assert ended.code == 1
    assert "no worker is running, so the job would wait" in ended.err
    assert "--wait-for-worker" in ended.err
    announce(api, "x86-64-v2")
    ended = served("compile", model, *TARGETS)
    assert ended.code == 2
    assert "no running worker compiles for x86-64-v3" in ended.err
    error = served("compile", model, *TARGETS, "--json").json["error"]
    assert (error["code"], error["hint"]) == (
        "worker.target",
        "submit with --wait-for-worker, or choose a target of the running workers: x86-64-v2",
    )
    assert served("jobs", "list").out == "no jobs\n"


def test_a_worker_that_is_just_starting_is_waited_for(served: Any, model: str, api: Live) -> None:
    timer = threading.Timer(0.3, lambda: announce(api, "x86-64-v2"))
    timer.start()
    assert served("compile", model, "--target", "x86-64-v2").code == 0
    timer.join()


@pytest.fixture
def slow_v3(api: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    """Builds for x86-64-v3 go on until they are cancelled."""

    def behave(cancelled: Any) -> None:
        while api.compiler.jobs[-1].target == "x86-64-v3" and not cancelled():  # type: ignore[union-attr]
            time.sleep(0.02)
        if cancelled():
            raise CompileCancelled("it was cancelled", reason="cancelled")

    monkeypatch.setattr(api.compiler, "behaviour", behave)


def test_what_is_done_is_pulled_when_the_time_is_up(
    served: Any, model: str, api: Live, slow_v3: None
) -> None:
    ended = served("compile", model, *TARGETS, "--wait-for-worker", "--timeout", "3", "--json")
    assert ended.code == 1
    assert "x86-64-v3: queued: no worker is running" in ended.err
    done, late = ended.json["results"]
    assert (done["target"], done["output"]) == ("x86-64-v2", "out/x86-64-v2")
    assert Path("out/x86-64-v2/model.so").exists()
    assert (late["target"], late["error"]["code"]) == ("x86-64-v3", "client.wait_timeout")
    job = ended.json["id"]
    assert f"relaxd jobs follow {job}" in late["error"]["hint"]
    assert served("jobs", "follow", job, "--timeout", "0.2").code == 1
    assert served("jobs", "cancel", job, "--json").json["id"] == job
    ended = served("jobs", "follow", job)
    assert ended.code == 1
    assert "x86-64-v2: succeeded" in ended.err
    assert "cancelled" in ended.out


def test_a_job_that_waits_for_the_broker_says_so(
    served: Any, model: str, api: Live, monkeypatch: pytest.MonkeyPatch
) -> None:
    announce(api, "x86-64-v3")
    doorbell = api.services.core.doorbell
    monkeypatch.setattr(following, "LOOK_S", 0.05)
    monkeypatch.setattr(doorbell, "ring", lambda build_id, capability: None)
    monkeypatch.setattr(doorbell, "trouble", None)
    timer = threading.Timer(0.5, lambda: setattr(doorbell, "trouble", "refused"))
    timer.start()
    ended = served("compile", model, "--target", "x86-64-v3", "--timeout", "2")
    timer.join()
    assert ended.code == 1
    assert ended.err.count("x86-64-v3: queued: the message broker does not answer") == 1


def test_a_deadline_that_no_worker_meets(served: Any, model: str, api: Live) -> None:
    command = ("compile", model, "--target", "x86-64-v2", "--wait-for-worker", "--detach")
    urgent = served(*command, "--priority", "3", "--deadline", "30m").out.strip()
    shown = served("jobs", "show", urgent).out
    assert "priority 3, builds may begin until 20" in shown
    late = served(*command, "--deadline", "0.001").out.strip()
    until(lambda: sweeping.end_late(api.services.core), 20, "a late build")
    ended = served("jobs", "follow", late)
    assert ended.code == 1
    assert "no worker could begin before the deadline" in ended.out
    assert "a later deadline, or a higher priority" in ended.out
    assert "timed_out" in ended.out


def test_an_urgency_that_means_nothing_is_refused_before_anything_is_sent(
    served: Any, model: str, api: Live
) -> None:
    ended = served("compile", model, "--deadline", "soon")
    assert (ended.code, "as in 90, 30m" in ended.err) == (2, True)
    assert served("compile", model, "--priority", "11").code == 2
    assert api.services.jobs.list() == []

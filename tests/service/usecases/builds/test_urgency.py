"""Which of a tenant's builds begin first, and what becomes of those whose deadline passes."""

import threading
from collections.abc import Callable

import pytest
from sqlalchemy import event

from relaxd.contract.failures import Failure
from relaxd.contract.request import CompileRequest
from relaxd.contract.states import State
from relaxd.contract.urgency import AGING_S, Deadline, Urgency
from relaxd.errors import DeclarationError
from service.core import Core
from service.db.schema import builds
from service.domain import Build, Claim, EventType
from service.identity import DEFAULT
from service.jobs import Jobs
from service.usecases.builds import claiming, ending, scheduling, sweeping
from service.usecases.store import holdings
from service.usecases.tenants import tenants
from tests.service.fakes import FakeClock

CAPABILITIES = ["native"]
LOST = Failure(code="worker.lost", stage="load", message="lost", retryable=True)

Submit = Callable[..., Build]


@pytest.fixture
def submit(core: Core, jobs: Jobs, clock: FakeClock) -> Submit:
    """Queue a build of a model of that content, a second after the one before."""

    def submit(
        content: str, priority: int = 0, deadline: Deadline | None = None, tenant: str = DEFAULT
    ) -> Build:
        clock.advance(1)
        model = holdings.view(core, tenant).blobs.put(content.encode()).digest
        urgency = Urgency.of(priority, deadline)
        return jobs.of(tenant).submit(model, CompileRequest(), urgency=urgency).builds[0]

    return submit


def start(core: Core) -> Claim:
    build_id = scheduling.next_build(core, CAPABILITIES)
    assert build_id is not None
    claim = claiming.take(core, build_id, "worker")
    assert claim is not None
    return claim


def run_all(core: Core) -> list[str]:
    """Begin and end builds as long as a free worker finds one; their ids."""
    order = []
    while scheduling.next_build(core, CAPABILITIES):
        claim = start(core)
        ending.finish(core, claim, ending.CANCELLED)
        order.append(claim.build_id)
    return order


def state(jobs: Jobs, build: Build) -> State:
    return jobs.of(None).get(build.job_id).builds[0].state


def test_by_priority_then_deadline_then_age(core: Core, submit: Submit) -> None:
    low, first, second = submit("low", -2), submit("first"), submit("second")
    later, sooner = submit("later", deadline="20m"), submit("sooner", deadline="10m")
    high, highest = submit("high", 1), submit("highest", 10)
    order = [highest, high, sooner, later, first, second, low]
    assert run_all(core) == [build.id for build in order]


def test_positions_are_in_the_order_of_claims(core: Core, jobs: Jobs, submit: Submit) -> None:
    queued = [submit("a"), submit("b", deadline="5m"), submit("c", 3), submit("d", -1)]
    with core.reading() as tx:
        positions = scheduling.positions(tx, DEFAULT)
    assert [positions[build.id] for build in queued] == [3, 2, 1, 4]


def test_what_waits_long_enough_is_overtaken_no_more(
    core: Core, clock: FakeClock, submit: Submit
) -> None:
    old = submit("old")
    clock.advance(AGING_S)
    assert run_all(core) == [old.id]
    old, _ = submit("older"), clock.advance(AGING_S)
    young = submit("young", 1)
    assert run_all(core) == [old.id, young.id]


def test_priority_does_not_count_against_other_tenants(core: Core, submit: Submit) -> None:
    for name in ("a", "b"):
        tenants.create(core, name)
    for number in range(4):
        submit(f"a {number}", 10, tenant="a")
        submit(f"b {number}", -10, tenant="b")
    order = [start(core).tenant for _ in range(8)]
    assert [sorted(order[first : first + 2]) for first in range(0, 8, 2)] == [["a", "b"]] * 4


def test_a_build_that_is_late_is_not_compiled(
    core: Core, jobs: Jobs, clock: FakeClock, submit: Submit
) -> None:
    late, other = submit("late", 10, "1m"), submit("other")
    assert sweeping.end_late(core) == 0
    clock.advance(60)
    assert scheduling.next_build(core, CAPABILITIES) == other.id
    assert (sweeping.end_late(core), sweeping.end_late(core)) == (1, 0)
    job = jobs.get(late.job_id)
    (build,) = job.builds
    assert (job.state, build.state, build.attempts) == (State.TIMED_OUT, State.TIMED_OUT, 0)
    assert build.error is not None
    assert (build.error.code, build.error.retryable) == ("build.deadline", False)
    assert "before the deadline" in build.error.message
    types = [event.type for event in jobs.events(late.job_id)]
    assert types == [EventType.JOB_QUEUED, EventType.BUILD_FINISHED, EventType.JOB_FINISHED]
    assert state(jobs, other) is State.QUEUED


def test_whoever_was_about_to_take_it_finds_it_late(
    core: Core, jobs: Jobs, clock: FakeClock, submit: Submit
) -> None:
    late = submit("late", deadline="1m")
    assert scheduling.next_build(core, CAPABILITIES) == late.id
    clock.advance(61)
    assert claiming.take(core, late.id, "worker") is None
    assert state(jobs, late) is State.TIMED_OUT


def test_a_build_that_runs_goes_on_beyond_its_deadline(
    core: Core, jobs: Jobs, clock: FakeClock, submit: Submit, runner
) -> None:
    build = submit("model", deadline="1m")
    claim = start(core)
    clock.advance(600)
    assert sweeping.end_late(core) == 0
    runner.run(claim)
    assert state(jobs, build) is State.SUCCEEDED


def test_a_build_that_was_interrupted_does_not_begin_again_after_its_deadline(
    core: Core, jobs: Jobs, clock: FakeClock, submit: Submit
) -> None:
    build = submit("model", deadline="1m")
    claim = start(core)
    clock.advance(61)
    ending.release(core, claim, LOST, attempted=False)
    assert scheduling.next_build(core, CAPABILITIES) is None
    assert sweeping.end_late(core) == 1
    assert state(jobs, build) is State.TIMED_OUT


def test_a_deadline_ends_no_equal_build(
    core: Core, jobs: Jobs, clock: FakeClock, submit: Submit, runner
) -> None:
    """The one with a deadline runs first, and is lost; who waits for its result still gets one."""
    hasty, patient = submit("model", 5, "1m"), submit("model")
    claim = start(core)
    assert claim.build_id == hasty.id
    assert claiming.take(core, patient.id, "worker") is None, "it waits for the equal one"
    clock.advance(61)
    ending.release(core, claim, LOST, attempted=True)
    assert sweeping.end_late(core) == 1
    assert (state(jobs, hasty), state(jobs, patient)) == (State.TIMED_OUT, State.QUEUED)
    again = start(core)
    assert again.build_id == patient.id
    runner.run(again)
    assert state(jobs, patient) is State.SUCCEEDED


def test_who_waits_for_an_equal_build_that_runs_gets_its_result_after_the_deadline(
    core: Core, jobs: Jobs, clock: FakeClock, submit: Submit, runner
) -> None:
    first, hasty = submit("model", 1), submit("model", deadline="1m")
    claim = start(core)
    assert claim.build_id == first.id
    assert claiming.take(core, hasty.id, "worker") is None
    clock.advance(61)
    assert sweeping.end_late(core) == 0
    runner.run(claim)
    assert state(jobs, hasty) is State.SUCCEEDED


def test_of_equal_builds_the_most_urgent_decides_when_the_work_begins(
    core: Core, jobs: Jobs, submit: Submit, runner
) -> None:
    plain, other, urgent = submit("model"), submit("other"), submit("model", 4)
    claim = start(core)
    assert claim.build_id == urgent.id
    runner.run(claim)
    assert scheduling.next_build(core, CAPABILITIES) == plain.id, "its result is known"
    runner.run(start(core))
    assert (state(jobs, plain), state(jobs, other)) == (State.SUCCEEDED, State.QUEUED)


def test_a_deadline_in_the_past_is_refused(core: Core, jobs: Jobs, clock: FakeClock) -> None:
    model = core.store.blobs.put(b"a model").digest
    urgency = Urgency.of(deadline="2020-01-01T00:00:00Z")
    with pytest.raises(DeclarationError, match="passed") as caught:
        jobs.submit(model, CompileRequest(), urgency=urgency)
    assert caught.value.field == "deadline"
    assert jobs.list() == []


def test_a_repeated_request_finds_its_job_after_the_deadline(
    core: Core, jobs: Jobs, clock: FakeClock
) -> None:
    model = core.store.blobs.put(b"a model").digest
    urgency = Urgency.of(2, "2023-11-15T00:00:00Z")
    first = jobs.submit(model, CompileRequest(), "once", urgency=urgency)
    clock.advance(1e6)
    again = jobs.submit(model, CompileRequest(), "once", urgency=Urgency.of(-2))
    assert (again.id, again.priority, again.deadline) == (first.id, 2, first.deadline)


def test_deadlines_end_once_while_workers_claim(
    core: Core, jobs: Jobs, clock: FakeClock, submit: Submit
) -> None:
    """Each build of forty is either begun or ends as late, whoever is first."""
    queued = [submit(f"model {number}", deadline="1m") for number in range(40)]
    claims: list[Claim | None] = []
    barrier = threading.Barrier(3)

    def claim() -> None:
        barrier.wait()
        for build in queued:
            claims.append(claiming.take(core, build.id, "worker"))

    def sweep() -> None:
        barrier.wait()
        clock.advance(120)
        for _ in range(4):
            sweeping.end_late(core)

    threads = [threading.Thread(target=one) for one in (claim, claim, sweep)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    sweeping.end_late(core)
    ended = {build.id: jobs.get(build.job_id).builds[0] for build in queued}
    begun = {one.build_id for one in claims if one}
    assert len(begun) == sum(one is not None for one in claims)
    for build_id, build in ended.items():
        assert build.state is (State.RUNNING if build_id in begun else State.TIMED_OUT)


def test_the_order_is_read_from_the_index(core: Core, submit: Submit) -> None:
    """EXPLAIN of what a free worker asks on SQLite; `test_plans.py` has a large queue."""
    if core.db.url.get_backend_name() != "sqlite":
        pytest.skip("PostgreSQL scans small tables, whatever their indexes")
    submit("model", 3, "1m")
    statements = []

    def note(_connection, _cursor, statement, parameters, *_rest) -> None:
        statements.append((statement, parameters))

    event.listen(core.db._engine, "before_cursor_execute", note)
    try:
        scheduling.next_build(core, CAPABILITIES)
        sweeping.end_late(core)
    finally:
        event.remove(core.db._engine, "before_cursor_execute", note)
    with core.reading() as tx:
        plans = [
            [row[3] for row in tx.connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {sql}", values)]
            for sql, values in statements
            if builds.name in sql
        ]
    steps = [step for plan in plans for step in plan]
    assert any("ix_builds_due_at" in step for step in steps)
    assert any("ix_builds_deadline" in step for step in steps)
    assert not [step for step in steps if step.startswith("SCAN builds")]
    assert "USE TEMP B-TREE FOR ORDER BY" not in steps

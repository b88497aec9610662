import threading

import pytest

from relaxd.contract.request import CompileRequest
from relaxd.contract.states import State
from service.domain import EventType, Outcome
from service.errors import StaleClaim
from service.usecases.builds import claiming, ending, reporting, sweeping


def submit_equal(jobs, model, count):
    return [jobs.submit(model, CompileRequest()).builds[0] for _ in range(count)]


def states(jobs, result):
    return [jobs.get(build.job_id).builds[0].state for build in result]


def test_only_one_of_many_workers_gets_a_build(core, jobs, model):
    (build,) = submit_equal(jobs, model, 1)
    claims = []
    threads = [
        threading.Thread(target=lambda: claims.append(claiming.take(core, build.id, "worker")))
        for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(claims) == 8
    assert sum(claim is not None for claim in claims) == 1
    assert jobs.get(build.job_id).builds[0].attempts == 1


def test_only_one_of_many_equal_builds_runs_and_the_others_take_its_result(
    core, jobs, model, runner, compiler
):
    result = submit_equal(jobs, model, 12)
    barrier = threading.Barrier(12)
    claims = []

    def take(build):
        barrier.wait()
        claims.append(claiming.take(core, build.id, "worker"))

    threads = [threading.Thread(target=take, args=(build,)) for build in result]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    (claim,) = [claim for claim in claims if claim]
    assert sorted(states(jobs, result)) == [State.QUEUED] * 11 + [State.RUNNING]
    runner.run(claim)
    assert states(jobs, result) == [State.SUCCEEDED] * 12
    assert len(compiler.jobs) == 1
    builds = [jobs.get(build.job_id).builds[0] for build in result]
    assert sorted(build.cached for build in builds) == [False] + [True] * 11
    assert len({build.artifact for build in builds}) == 1


def test_a_waiting_build_says_so(core, jobs, model):
    holder, waiting = submit_equal(jobs, model, 2)
    claiming.take(core, holder.id, "worker")
    assert claiming.take(core, waiting.id, "worker") is None
    (build,) = jobs.get(waiting.job_id).builds
    assert (build.waiting_on, build.note) == (
        holder.id,
        f"waits for the result of an equal build, {holder.id}",
    )
    assert claiming.take(core, waiting.id, "worker") is None
    types = [event.type for event in jobs.events(waiting.job_id)]
    assert types == [EventType.JOB_QUEUED, EventType.BUILD_QUEUED]


@pytest.mark.parametrize("state", [State.FAILED, State.TIMED_OUT])
def test_a_failure_is_shared_with_the_waiting(core, jobs, model, state):
    from relaxd.contract.failures import Failure

    result = submit_equal(jobs, model, 3)
    claim, *_ = [claiming.take(core, build.id, "worker") for build in result]
    failure = Failure(code="import.unsupported_op", stage="import", message="no")
    ending.finish(core, claim, Outcome(state, error=failure))
    assert [
        (jobs.get(build.job_id).state, jobs.get(build.job_id).builds[0].error) for build in result
    ] == [(state, failure)] * 3


def test_when_the_running_one_is_cancelled_a_waiting_one_takes_over(
    core, jobs, model, doorbell, answer
):
    result = submit_equal(jobs, model, 3)
    claim, *_ = [claiming.take(core, build.id, "worker") for build in result]
    jobs.cancel(claim.job_id)
    assert reporting.beat(core, claim)
    doorbell.rings.clear()
    ending.finish(core, claim, ending.CANCELLED)
    assert doorbell.rings == [result[1].id]
    answer(result[1].id)
    assert states(jobs, result) == [State.CANCELLED, State.SUCCEEDED, State.SUCCEEDED]


def test_a_waiting_build_that_wants_a_dump_runs_itself_where_the_result_has_none(
    core, jobs, model, runner, compiler, doorbell
):
    running, wanting = (
        jobs.submit(model, CompileRequest.of(options=options)).builds[0]
        for options in ({}, {"dump": True})
    )
    claim = claiming.take(core, running.id, "worker")
    assert claiming.take(core, wanting.id, "worker") is None
    doorbell.rings.clear()
    runner.run(claim)
    assert states(jobs, [running, wanting]) == [State.SUCCEEDED, State.QUEUED]
    assert doorbell.rings == [wanting.id]
    runner.run(claiming.take(core, wanting.id, "worker"))
    (ended,) = jobs.get(wanting.job_id).builds
    assert ended.dump is not None
    assert ended.artifact == jobs.get(running.job_id).builds[0].artifact
    assert len(compiler.jobs) == 2


def test_a_waiting_build_takes_the_dump_of_an_equal_one(core, jobs, model, runner, compiler):
    results = [
        jobs.submit(model, CompileRequest.of(options={"dump": True})).builds[0] for _ in range(2)
    ]
    claim = claiming.take(core, results[0].id, "worker")
    assert claiming.take(core, results[1].id, "worker") is None
    runner.run(claim)
    first, second = (jobs.get(build.job_id).builds[0] for build in results)
    assert first.dump == second.dump is not None
    assert len(compiler.jobs) == 1


def test_cancelling_a_waiting_build_leaves_the_running_one_alone(core, jobs, model, runner):
    result = submit_equal(jobs, model, 3)
    claim, *_ = [claiming.take(core, build.id, "worker") for build in result]
    assert jobs.cancel(result[1].job_id).state is State.CANCELLED
    assert not reporting.beat(core, claim)
    runner.run(claim)
    assert states(jobs, result) == [State.SUCCEEDED, State.CANCELLED, State.SUCCEEDED]


def test_equal_targets_of_one_job_share_a_flight(core, jobs, model, runner, compiler):
    compiler.action_key = lambda kind, model, request, target: type(compiler).action_key(
        compiler, kind, model, CompileRequest(), "native"
    )
    job = jobs.submit(model, CompileRequest(targets=("native", "x86-64-v2")))
    claim, waiting = [claiming.take(core, build.id, "worker") for build in job.builds]
    assert waiting is None
    runner.run(claim)
    assert jobs.get(job.id).state is State.SUCCEEDED
    assert len(compiler.jobs) == 1


def test_every_word_under_an_old_fence_is_refused(core, jobs, model, clock):
    (build,) = submit_equal(jobs, model, 1)
    old = claiming.take(core, build.id, "one")
    clock.advance(core.settings.lease_s + 1)
    assert sweeping.reclaim(core) == 1
    new = claiming.take(core, build.id, "two")
    assert new.fence > old.fence
    events = len(jobs.events(build.job_id))
    with pytest.raises(StaleClaim):
        reporting.beat(core, old)
    with pytest.raises(StaleClaim):
        reporting.progress(core, old, [(EventType.BUILD_LOG, {"line": "x"})])
    with pytest.raises(StaleClaim):
        ending.finish(core, old, Outcome(State.SUCCEEDED))
    assert len(jobs.events(build.job_id)) == events
    assert states(jobs, [build]) == [State.RUNNING]
    assert not reporting.beat(core, new)


def test_a_key_that_cannot_be_computed_fails_the_build(core, jobs, model, compiler):
    from compiler.errors import ToolchainMissing

    def missing(*_):
        raise ToolchainMissing("ziglang is not installed", reason="missing_package")

    (build,) = submit_equal(jobs, model, 1)
    compiler.action_key = missing
    assert claiming.take(core, build.id, "worker") is None
    assert jobs.get(build.job_id).builds[0].error.code == "toolchain.missing_package"


def test_there_is_nothing_to_claim_in_an_unknown_or_ended_build(core, jobs, model):
    (build,) = submit_equal(jobs, model, 1)
    jobs.cancel(build.job_id)
    assert claiming.take(core, build.id, "worker") is None
    assert claiming.take(core, "nonsense", "worker") is None

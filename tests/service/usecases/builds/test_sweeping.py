from relaxd.contract.request import CompileRequest
from relaxd.contract.states import State
from service.domain import EventType
from service.usecases.builds import claiming, ending, reporting, sweeping


def submit_job(jobs, model, *targets):
    return jobs.submit(model, CompileRequest(targets=targets or ("native",))).builds[0]


def build_of(jobs, build):
    return jobs.get(build.job_id).builds[0]


def test_a_heartbeat_keeps_the_build(core, jobs, model, clock):
    claim = claiming.take(core, submit_job(jobs, model).id, "worker")
    for _ in range(3):
        clock.advance(core.settings.lease_s - 1)
        assert sweeping.reclaim(core) == 0
        assert not reporting.beat(core, claim)


def test_a_silent_workers_build_is_queued_again_then_fails(core, jobs, model, clock, doorbell):
    build = submit_job(jobs, model)
    for attempt in range(1, core.settings.max_attempts + 1):
        doorbell.rings.clear()
        assert claiming.take(core, build.id, f"worker {attempt}")
        clock.advance(core.settings.lease_s + 1)
        assert (sweeping.reclaim(core), sweeping.reclaim(core)) == (1, 0)
        assert doorbell.rings == ([build.id] if attempt < core.settings.max_attempts else [])
    ended = build_of(jobs, build)
    assert (ended.state, ended.error.code, ended.error.retryable) == (
        State.FAILED,
        "worker.lost",
        True,
    )
    reasons = [
        event.data["reason"]
        for event in jobs.events(build.job_id)
        if event.type is EventType.BUILD_QUEUED
    ]
    assert reasons == ["worker worker 1 stopped responding in attempt 1 of 2: trying again"]


def test_a_silent_workers_cancelled_build_is_cancelled(core, jobs, model, clock):
    build = submit_job(jobs, model)
    claiming.take(core, build.id, "worker")
    jobs.cancel(build.job_id)
    clock.advance(core.settings.lease_s + 1)
    sweeping.reclaim(core)
    assert jobs.get(build.job_id).state is State.CANCELLED


def test_the_waiting_survive_the_loss_of_the_running(core, jobs, model, clock, answer):
    holder, waiting = submit_job(jobs, model), submit_job(jobs, model)
    claiming.take(core, holder.id, "worker")
    claiming.take(core, waiting.id, "worker")
    clock.advance(core.settings.lease_s + 1)
    sweeping.reclaim(core)
    assert answer(waiting.id), "a waiting build takes the flight that was lost"
    answer(holder.id)
    assert [build_of(jobs, build).state for build in (holder, waiting)] == [State.SUCCEEDED] * 2


def test_the_waiting_share_the_end_of_a_build_that_loses_every_worker(core, jobs, model, clock):
    holder, waiting = submit_job(jobs, model), submit_job(jobs, model)
    for _ in range(core.settings.max_attempts):
        claiming.take(core, holder.id, "worker")
        claiming.take(core, waiting.id, "worker")
        clock.advance(core.settings.lease_s + 1)
        sweeping.reclaim(core)
    assert build_of(jobs, waiting).error.code == "worker.lost"


def test_a_lost_doorbell_is_rung_again_after_a_while(core, jobs, model, clock, doorbell):
    doorbell.silent = True
    first, second, foreign = (
        submit_job(jobs, model),
        submit_job(jobs, model),
        submit_job(jobs, model, "x86-64-v4"),
    )
    doorbell.silent = False
    assert sweeping.ring_again(core, ["native"], 8) == 0, "too early to call it lost"
    clock.advance(core.settings.ring_after_s)
    assert sweeping.ring_again(core, ["native"], 0) == 0, "no free slot"
    assert sweeping.ring_again(core, ["native"], 1) == 1
    assert sweeping.ring_again(core, ["native"], 8) == 1, "the first was rung for just now"
    assert sorted(doorbell.rings) == sorted([first.id, second.id])
    assert sweeping.ring_again(core, ["x86-64-v4"], 8) == 1
    assert doorbell.rings[2:] == [foreign.id]


def test_the_waiting_are_not_rung_for_while_their_equal_runs(core, jobs, model, clock, doorbell):
    holder, waiting = submit_job(jobs, model), submit_job(jobs, model)
    claim = claiming.take(core, holder.id, "worker")
    claiming.take(core, waiting.id, "worker")
    clock.advance(core.settings.ring_after_s)
    doorbell.rings.clear()
    assert sweeping.ring_again(core, ["native"], 8) == 0
    doorbell.silent = True
    ending.finish(core, claim, ending.CANCELLED)
    doorbell.silent = False
    assert sweeping.ring_again(core, ["native"], 8) == 1
    assert doorbell.rings == [waiting.id]

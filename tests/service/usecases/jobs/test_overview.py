from collections.abc import Callable

import pytest

from relaxd.contract.request import CompileRequest
from relaxd.contract.states import Stage, State
from service.core import Core
from service.domain import Claim, EventType
from service.errors import UnknownJob
from service.jobs import Jobs
from service.usecases.builds import claiming, fleet, reporting
from service.usecases.jobs import overview
from service.usecases.jobs.overview import Search
from tests.service.fakes import FakeClock

TWO = CompileRequest.of(targets=["x86-64-v2", "x86-64-v3"])


def test_a_job_in_brief_counts_its_builds(
    jobs: Jobs, core: Core, model: str, answer: Callable[[str], Claim | None]
) -> None:
    job = jobs.submit(model, TWO, model_name="m.onnx")
    (brief,) = jobs.overview(Search())
    assert (brief.id, brief.name, brief.state) == (job.id, "m.onnx", State.QUEUED)
    assert (brief.builds, brief.position) == ({State.QUEUED: 2}, 1)
    answer(job.builds[0].id)
    claim = claiming.take(core, job.builds[1].id, "w")
    assert claim
    reporting.progress(core, claim, [(EventType.BUILD_STAGE, {"stage": Stage.CODEGEN})])
    (brief,) = jobs.overview(Search())
    assert brief.builds == {State.SUCCEEDED: 1, State.RUNNING: 1}
    assert brief.running == (("x86-64-v3", Stage.CODEGEN),)
    assert (brief.cached, brief.position, brief.finished_at) == (0, None, None)


def test_what_came_from_the_cache_is_counted(
    jobs: Jobs, model: str, answer: Callable[[str], Claim | None]
) -> None:
    for _ in range(2):
        for build in jobs.submit(model, TWO).builds:
            answer(build.id)
    assert sorted(brief.cached for brief in jobs.overview(Search())) == [0, 2]


def test_jobs_are_found_by_name_id_and_state(jobs: Jobs, model: str, clock: FakeClock) -> None:
    created = []
    for name in ("Alpha_1.onnx", "beta.onnx", "alphax1.onnx"):
        created.append(jobs.submit(model, TWO, model_name=name).id)
        clock.advance(1)

    def result(**search: object) -> list[str]:
        return [brief.id for brief in jobs.overview(Search(**search))]  # type: ignore[arg-type]

    assert result() == created[::-1]
    assert result(text="ALPHA") == [created[2], created[0]]
    assert result(text="alpha_") == [created[0]]  # no wildcard
    assert result(text=created[1][:6]) == [created[1]]
    assert result(state=State.RUNNING) == []
    assert result(limit=2) == created[:0:-1]
    assert result(limit=2, before=created[1]) == [created[0]]
    with pytest.raises(UnknownJob):
        jobs.of("elsewhere").overview(Search(before=created[1]))


def test_jobs_of_one_moment_are_all_listed(jobs: Jobs, model: str) -> None:
    created = {jobs.submit(model, TWO).id for _ in range(5)}
    seen: list[str] = []
    while page := jobs.overview(Search(limit=2, before=seen[-1] if seen else None)):
        seen += [brief.id for brief in page]
    assert (len(seen), set(seen)) == (5, created)


def test_the_queue_names_the_position_of_each_job(
    jobs: Jobs, core: Core, model: str, clock: FakeClock
) -> None:
    first = jobs.submit(model, TWO)
    clock.advance(1)
    second = jobs.submit(model, CompileRequest.of(targets=["x86-64-v3"]))
    jobs.inspect(model, CompileRequest())
    fleet.announce(core, "w", "host", ["x86-64-v2"], 1)
    queue = jobs.queue()
    assert (queue.running, queue.queued, queue.workers) == (0, 3, 1)
    assert queue.positions == {first.id: 1, second.id: 2}
    assert [build.position for build in jobs.get(second.id).builds] == [2]
    assert jobs.of("elsewhere").queue().positions == {}
    jobs.cancel(first.id)
    assert jobs.queue().positions == {second.id: 1}
    assert [build.position for build in jobs.get(first.id).builds] == [None, None]


def test_changes_are_told_once(jobs: Jobs, model: str, clock: FakeClock) -> None:
    retained = jobs.submit(model, TWO)
    snapshot, briefs = jobs.read_changes(None)
    assert (set(snapshot.seen), briefs) == ({retained.id}, [])
    snapshot, briefs = jobs.read_changes(snapshot)
    assert briefs == []
    clock.advance(60)
    fresh = jobs.submit(model, TWO)
    jobs.cancel(retained.id)
    snapshot, briefs = jobs.read_changes(snapshot)
    assert {brief.id: brief.state for brief in briefs} == {
        fresh.id: State.QUEUED,
        retained.id: State.CANCELLED,
    }
    assert jobs.read_changes(snapshot)[1] == []
    clock.advance(60)
    snapshot, _ = jobs.read_changes(snapshot)
    assert set(jobs.read_changes(snapshot)[0].seen) == {fresh.id}


def test_a_job_has_as_many_targets_as_it_likes(jobs: Jobs, model: str) -> None:
    many = CompileRequest.of(
        targets=[f'{{"kind": "llvm", "num-cores": {n}}}' for n in range(1, 51)]
    )
    for _ in range(overview._AT_A_TIME // 25):
        jobs.submit(model, many)
    briefs = jobs.overview(Search(limit=1000))
    assert all(sum(brief.builds.values()) == 50 for brief in briefs)
    assert len(briefs) == 20

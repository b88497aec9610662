"""How builds end or go back to the queue."""

import pytest

from relaxd.contract.failures import Failure
from relaxd.contract.request import CompileRequest
from relaxd.contract.states import State
from service.domain import Claim, Outcome
from service.errors import StaleClaim
from service.usecases.builds import claiming, ending

LOST = Failure("worker.lost", "import", "the worker is gone", retryable=True)
WRONG = Outcome(State.FAILED, error=Failure("import.shape", "import", "no such shape"))


def claim_build(core, jobs, model, count: int = 1) -> tuple[list[str], Claim]:
    """Equal jobs, the first one's build taken, the others waiting for it."""
    ids = [jobs.submit(model, CompileRequest()).id for _ in range(count)]
    builds = [jobs.get(job_id).builds[0] for job_id in ids]
    claims = [claiming.take(core, build.id, "worker") for build in builds]
    assert claims[0]
    assert not any(claims[1:])
    return ids, claims[0]


def test_a_failure_is_shared_with_those_that_waited(core, jobs, model) -> None:
    ids, claim = claim_build(core, jobs, model, 3)
    ending.finish(core, claim, WRONG)
    builds = [jobs.get(job_id).builds[0] for job_id in ids]
    assert {build.state for build in builds} == {State.FAILED}
    assert [build.error for build in builds] == [WRONG.error] * 3
    assert not any(build.cached for build in builds)


def test_a_released_build_is_rung_for_again(core, jobs, model, doorbell) -> None:
    _, claim = claim_build(core, jobs, model)
    doorbell.rings.clear()
    ending.release(core, claim, LOST, attempted=True)
    assert doorbell.rings == [claim.build_id]
    again = claiming.take(core, claim.build_id, "another")
    assert again is not None
    assert again.fence > claim.fence


def test_attempts_have_an_end(core, jobs, model, settings) -> None:
    (job_id,), claim = claim_build(core, jobs, model)
    for _ in range(settings.max_attempts - 1):
        ending.release(core, claim, LOST, attempted=True)
        claim = claiming.take(core, claim.build_id, "worker")
        assert claim
    ending.release(core, claim, LOST, attempted=True)
    build = jobs.get(job_id).builds[0]
    assert (build.state, build.error, build.attempts) == (State.FAILED, LOST, settings.max_attempts)


def test_what_was_not_an_attempt_does_not_count(core, jobs, model, settings) -> None:
    (job_id,), claim = claim_build(core, jobs, model)
    for _ in range(settings.max_attempts + 2):
        ending.release(core, claim, LOST, attempted=False)
        claim = claiming.take(core, claim.build_id, "worker")
        assert claim
    assert jobs.get(job_id).builds[0].attempts == 1


def test_a_cancelled_build_is_not_tried_again(core, jobs, model) -> None:
    (job_id,), claim = claim_build(core, jobs, model)
    jobs.cancel(job_id)
    ending.release(core, claim, LOST, attempted=True)
    assert jobs.get(job_id).state is State.CANCELLED


def test_a_claim_ends_a_build_once(core, jobs, model) -> None:
    _, claim = claim_build(core, jobs, model)
    ending.finish(core, claim, WRONG)
    for again in (
        lambda: ending.finish(core, claim, WRONG),
        lambda: ending.release(core, claim, LOST, attempted=True),
    ):
        with pytest.raises(StaleClaim):
            again()

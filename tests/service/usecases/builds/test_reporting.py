"""A worker's word counts while it holds the build, and its speech is bounded."""

import pytest

from relaxd.contract.request import CompileRequest
from service.domain import Claim, EventType
from service.errors import StaleClaim
from service.usecases.builds import claiming, reporting, sweeping


@pytest.fixture
def claim(core, jobs, model) -> Claim:
    (build,) = jobs.submit(model, CompileRequest()).builds
    taken = claiming.take(core, build.id, "worker")
    assert taken
    return taken


def log_lines(jobs, claim: Claim) -> list[str]:
    return [
        event.data["line"]
        for event in jobs.events(claim.job_id)
        if event.type is EventType.BUILD_LOG
    ]


def line(text: str):
    return (EventType.BUILD_LOG, {"line": text})


def test_the_log_ends_with_a_remark_at_the_limit(core, jobs, claim, settings) -> None:
    limit = settings.max_log_lines
    reporting.progress(core, claim, [line(str(index)) for index in range(limit - 1)])
    reporting.progress(core, claim, [line("last"), line("too much"), line("more")])
    reporting.progress(core, claim, [line("still talking")])
    lines = log_lines(jobs, claim)
    assert lines[-2] == "last"
    assert lines[-1] == f"[the log ends here: it has more than {limit} lines]"
    assert len(lines) == limit + 1


def test_stages_are_told_however_much_was_said(core, jobs, claim, settings) -> None:
    reporting.progress(core, claim, [line("x")] * (settings.max_log_lines + 5))
    reporting.progress(core, claim, [(EventType.BUILD_STAGE, {"stage": "link"})])
    assert jobs.events(claim.job_id)[-1].data == {"stage": "link"}
    assert jobs.get(claim.job_id).builds[0].stage == "link"


def test_the_newest_stage_stays(core, jobs, claim) -> None:
    stages = [(EventType.BUILD_STAGE, {"stage": name}) for name in ("import", "pass")]
    reporting.progress(core, claim, [*stages, line("in the pass")])
    assert jobs.get(claim.job_id).builds[0].stage == "pass"


def test_a_beat_renews_the_lease_and_tells_of_a_cancellation(
    core, jobs, claim, clock, settings
) -> None:
    clock.advance(settings.lease_s * 0.9)
    assert reporting.beat(core, claim) is False
    clock.advance(settings.lease_s * 0.9)
    sweeping.reclaim(core)
    assert jobs.get(claim.job_id).builds[0].fence == claim.fence
    jobs.cancel(claim.job_id)
    assert reporting.beat(core, claim) is True


def test_a_claim_that_was_lost_is_not_listened_to(core, jobs, claim, clock, settings) -> None:
    clock.advance(settings.lease_s + 1)
    sweeping.reclaim(core)
    before = jobs.events(claim.job_id)
    with pytest.raises(StaleClaim):
        reporting.beat(core, claim)
    with pytest.raises(StaleClaim):
        reporting.progress(core, claim, [line("I am still here")])
    assert jobs.events(claim.job_id) == before

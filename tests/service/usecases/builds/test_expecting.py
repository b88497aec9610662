"""How long a build may take."""

from dataclasses import replace
from functools import partial

import pytest

from relaxd.contract.request import CompileRequest
from service.domain import EventType
from service.usecases.builds import claiming
from service.usecases.builds.expecting import seconds_of_last_build


def submit(jobs, model, number=0, **more):
    """A job unlike others, by its seed."""
    return jobs.submit(model, CompileRequest.of(options={"seed": number}), **more)


def run(core, runner, clock, job, seconds):
    """Run its build, which takes so many seconds."""
    claim = claiming.take(core, job.builds[0].id, "worker")
    clock.advance(seconds)
    runner.run(claim)


def start_build(core, jobs, job):
    """Claim the build; the seconds that the event of its start has."""
    assert claiming.take(core, job.builds[0].id, "worker")
    events = [e.data for e in jobs.events(job.id) if e.type is EventType.BUILD_STARTED]
    return events[-1].get("expected_seconds")


def test_the_last_build_of_the_model_tells(core, jobs, model, runner, clock):
    first = submit(jobs, model)
    run(core, runner, clock, first, 40)
    run(core, runner, clock, submit(jobs, model, 1), 70)
    assert start_build(core, jobs, submit(jobs, model, 2)) == pytest.approx(70, abs=1)


def test_the_first_build_of_a_model_has_nothing_to_go_by(core, jobs, model):
    assert start_build(core, jobs, submit(jobs, model)) is None


def test_other_weights_by_the_same_name_are_the_same_model(core, jobs, model, runner, clock):
    other = core.store.blobs.put(b"other weights").digest
    run(core, runner, clock, submit(jobs, model, model_name="m"), 40)
    unnamed = submit(jobs, other, 1)
    assert start_build(core, jobs, unnamed) is None
    named = submit(jobs, other, 2, model_name="m")
    assert start_build(core, jobs, named) == pytest.approx(40, abs=1)


def test_what_tells_nothing_is_left_out(core, jobs, model, runner, clock):
    """Builds of other tenants and for other targets, and answers of the cache."""
    first = submit(jobs, model)
    run(core, runner, clock, first, 40)
    ask = partial(seconds_of_last_build, core)
    assert ask(first, "native") == pytest.approx(40, abs=1)
    assert ask(first, "x86-64-v3") is None
    assert ask(replace(first, tenant="another"), "native") is None
    cached = submit(jobs, model)
    assert cached.builds[0].cached or claiming.take(core, cached.builds[0].id, "w")
    assert ask(cached, "native") == pytest.approx(40, abs=1)

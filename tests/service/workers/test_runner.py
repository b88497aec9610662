import json
import time
from pathlib import Path

import pytest

from artifacts.attestations import PROFILE, attach
from artifacts.documents import read_document
from artifacts.errors import StorageFailed
from artifacts.oci import REPOSITORY, bundle_files, publish_bundle
from compiler.errors import CompileCancelled, CompileCrashed, CompileTimeout, ImportFailed
from relaxd.contract.bundle.manifest import DUMP_START
from relaxd.contract.request import CompileRequest
from relaxd.contract.states import Stage, State
from service.domain import EventType
from service.identity import DEFAULT, Limits
from service.usecases.builds import claiming, ending, explaining, results, sweeping
from service.usecases.store import holdings
from service.usecases.store.reserving import Reservation
from service.usecases.tenants import tenants
from tests.service.fakes import mismatch
from tests.support.bundles import fetch

pytestmark = pytest.mark.slow


def submit_job(jobs, model, **fields):
    (build,) = jobs.submit(model, CompileRequest.of(**fields)).builds
    return build


def now(jobs, build):
    (result,) = jobs.get(build.job_id).builds
    return result


def test_a_build_ends_with_its_bundle_profile_and_numerics(core, jobs, model, answer, tmp_path):
    build = submit_job(jobs, model)
    claim = answer(build.id)
    done = now(jobs, build)
    assert (done.state, done.cached, done.stage, done.attempts) == (
        State.SUCCEEDED,
        False,
        Stage.PUBLISH,
        1,
    )
    assert done.profile == {"measured": True, "load_ms": 7.0}
    assert done.numerics == {"verdict": "passed", "status": "executed", "warnings": []}
    assert done.action_key == claim.action_key
    fetch(core.store.blobs, done.artifact.digest, tmp_path / "out")
    assert (tmp_path / "out" / "model.so").read_bytes() == b"a modelnative"
    assert done.artifact.size == sum(path.stat().st_size for path in (tmp_path / "out").iterdir())
    assert core.store.actions.get(claim.action_key) == done.artifact.digest


def test_events_tell_the_story_in_order_without_gaps(jobs, model, answer):
    build = submit_job(jobs, model)
    answer(build.id)
    events = jobs.events(build.job_id)
    assert [event.seq for event in events] == list(range(1, len(events) + 1))
    assert [(event.type, event.target) for event in events] == [
        (EventType.JOB_QUEUED, None),
        (EventType.BUILD_STARTED, "native"),
        (EventType.BUILD_STAGE, "native"),
        (EventType.BUILD_LOG, "native"),
        (EventType.BUILD_STAGE, "native"),
        (EventType.BUILD_FINISHED, "native"),
        (EventType.JOB_FINISHED, None),
    ]
    assert jobs.events(build.job_id, after=4) == events[4:]


def test_the_same_work_again_is_answered_from_the_cache(jobs, model, answer, compiler):
    first, second = submit_job(jobs, model), submit_job(jobs, model)
    answer(first.id)
    answer(second.id)
    assert now(jobs, second).cached
    assert now(jobs, second).artifact == now(jobs, first).artifact
    assert now(jobs, second).profile == now(jobs, first).profile
    assert len(compiler.jobs) == 1


def test_the_samples_reach_the_compiler(core, jobs, model, answer, compiler):
    seen = []
    samples = core.store.blobs.put(b"samples").digest
    compiler.behaviour = lambda cancelled: seen.append(Path(compiler.jobs[0].samples).read_bytes())
    answer(submit_job(jobs, model, samples=samples).id)
    assert seen == [b"samples"]


@pytest.mark.parametrize(
    ("error", "state"),
    [
        (ImportFailed("no such op", reason="unsupported_op", node="n1", op="Foo"), State.FAILED),
        (CompileTimeout("too slow", reason="timeout"), State.TIMED_OUT),
        (CompileCrashed("died of SIGSEGV", reason="crashed"), State.FAILED),
    ],
)
def test_a_failure_of_the_model_ends_the_build_with_it(jobs, model, answer, compiler, error, state):
    def fail(cancelled):
        raise error

    compiler.behaviour = fail
    build = submit_job(jobs, model)
    answer(build.id)
    assert (now(jobs, build).state, now(jobs, build).error) == (state, error.failure)
    assert jobs.get(build.job_id).state is state


@pytest.mark.parametrize(
    "error",
    [
        StorageFailed("disk full"),
        CompileCrashed("killed", reason="crashed", retryable=True),
        ZeroDivisionError("ours"),
    ],
)
def test_a_failure_of_the_machine_is_tried_again_up_to_the_cap(
    jobs, model, answer, compiler, doorbell, error
):
    def fail(cancelled):
        raise error

    compiler.behaviour = fail
    build = submit_job(jobs, model)
    answer(build.id)
    assert (now(jobs, build).state, doorbell.rings) == (State.QUEUED, [build.id] * 2)
    answer(build.id)
    assert (now(jobs, build).state, now(jobs, build).attempts) == (State.FAILED, 2)
    assert now(jobs, build).error.retryable


def test_a_build_begins_only_where_its_tenant_may_store_more(core, jobs, model, answer):
    tenants.change(core, DEFAULT, limits=Limits(stored_bytes=1 << 20))
    first, second = (submit_job(jobs, model, options=options) for options in ({}, {"dump": True}))
    under_way = Reservation(core, DEFAULT)
    with core.writing() as tx:
        room = under_way.room(tx)
    under_way.cover(room, is_all=True)
    answer(first.id)
    under_way.end()
    answer(second.id)
    failed, done = now(jobs, first), now(jobs, second)
    assert (failed.state, failed.error.code, failed.attempts) == (State.FAILED, "tenant.quota", 1)
    assert done.state is State.SUCCEEDED


def test_a_failed_target_does_not_hide_the_others(jobs, model, answer, compiler):
    job = jobs.submit(model, CompileRequest(targets=("x86-64-v2", "x86-64-v3")))
    answer(job.builds[0].id)
    assert jobs.get(job.id).state is State.RUNNING

    def fail(cancelled):
        raise ImportFailed("no", reason="unsupported_op")

    compiler.behaviour = fail
    answer(job.builds[1].id)
    assert [build.state for build in jobs.get(job.id).builds] == [State.SUCCEEDED, State.FAILED]
    assert jobs.get(job.id).state is State.FAILED


def stopping(cancelled):
    while not cancelled():
        time.sleep(0.01)
    raise CompileCancelled("stopped", reason="cancelled")


def test_a_cancelled_build_stops(core, jobs, model, answer, compiler):
    def behaviour(cancelled):
        jobs.cancel(build.job_id)
        stopping(cancelled)

    compiler.behaviour = behaviour
    build = submit_job(jobs, model)
    answer(build.id)
    assert jobs.get(build.job_id).state is State.CANCELLED
    assert now(jobs, build).error is None


def test_a_shut_down_worker_gives_the_build_back_uncounted(
    jobs, model, answer, compiler, shutdown, doorbell
):
    def behaviour(cancelled):
        shutdown.set()
        stopping(cancelled)

    compiler.behaviour = behaviour
    build = submit_job(jobs, model)
    answer(build.id)
    assert (now(jobs, build).state, now(jobs, build).attempts) == (State.QUEUED, 0)
    assert doorbell.rings[1:] == [build.id]


def test_a_stale_worker_is_refused(core, jobs, model, answer, compiler, clock, endings):
    def behaviour(cancelled):
        # A heartbeat that comes between the two renews the lease.
        while sweeping.reclaim(core) == 0:
            clock.advance(core.settings.lease_s + 1)
        assert claiming.take(core, build.id, "another") is not None

    compiler.behaviour = behaviour
    build = submit_job(jobs, model)
    answer(build.id)
    assert endings == ["stale"]
    assert (now(jobs, build).state, now(jobs, build).worker, now(jobs, build).artifact) == (
        State.RUNNING,
        "another",
        None,
    )


def test_a_build_reclaimed_after_its_bundle_was_published_finds_it(
    core, jobs, model, answer, compiler, clock
):
    build = submit_job(jobs, model)
    answer(build.id)
    again = submit_job(jobs, model)
    claiming.take(core, again.id, "killed")
    clock.advance(core.settings.lease_s + 1)
    sweeping.reclaim(core)
    answer(again.id)
    assert now(jobs, again).cached
    assert len(compiler.jobs) == 1


def test_nothing_is_left_in_the_work_folder(core, jobs, model, answer):
    answer(submit_job(jobs, model).id)
    assert list((core.settings.work_dir / "worker").iterdir()) == []


def test_what_a_build_says_is_bounded(core, jobs, model, answer, compiler, settings):
    object.__setattr__(core, "settings", settings.model_copy(update={"max_log_lines": 3}))
    original = compiler.run

    def chatty(job, *, on_event, cancelled, limits, kernels, on_usage):
        from compiler.isolation.messages import Log, Progress

        for number in range(300):
            on_event(Log(f"line {number}"))
            on_event(Progress(Stage.IMPORT, f"step {number}"))
        return original(job, on_event=on_event, cancelled=cancelled, limits=limits)

    compiler.run = chatty
    build = submit_job(jobs, model)
    answer(build.id)
    message = [
        event.data
        for event in jobs.events(build.job_id)
        if "line" in event.data or "message" in event.data
    ]
    assert len(message) == 4
    assert "more than 3 lines" in message[-1]["line"]
    assert [
        event.data["stage"] for event in jobs.events(build.job_id) if event.data.keys() == {"stage"}
    ] == ["import", "publish"]


def dump_of_build(jobs, build):
    return now(jobs, build).dump


def test_a_dump_is_kept_beside_the_bundle_where_the_request_asks_for_it(
    core, jobs, model, answer, tmp_path
):
    plain, dumped = (submit_job(jobs, model, options=options) for options in ({}, {"dump": True}))
    answer(plain.id)
    answer(dumped.id)
    assert dump_of_build(jobs, plain) is None
    fetch(core.store.blobs, dump_of_build(jobs, dumped).digest, tmp_path / "dump")
    assert (tmp_path / "dump" / DUMP_START).exists()
    assert now(jobs, dumped).artifact == now(jobs, plain).artifact


def test_a_tenant_may_read_the_dump_of_a_bundle_that_it_had_before(
    core, jobs, model, answer, tmp_path
):
    tenants.create(core, "another")
    plain, dumped = (submit_job(jobs, model, options=options) for options in ({}, {"dump": True}))
    answer(plain.id)
    answer(dumped.id)
    own = holdings.view(core, DEFAULT).blobs
    fetch(own, dump_of_build(jobs, dumped).digest, tmp_path / "dump")
    assert (tmp_path / "dump" / DUMP_START).exists()


def test_the_reproducer_of_a_mismatch_is_kept_in_the_store(
    core, jobs, model, answer, compiler, tmp_path
):
    def fail(cancelled):
        raise mismatch(compiler.jobs[-1])

    compiler.behaviour = fail
    build = submit_job(jobs, model)
    answer(build.id)
    ended = now(jobs, build)
    assert (ended.state, ended.error.code, ended.error.node) == (
        State.FAILED,
        "verify.mismatch",
        "n",
    )
    assert ended.error.details["bisection"] == {"node": "n", "nodes": 1}
    retained = ended.error.details["reproducer"]
    assert retained.keys() == {"digest", "ref", "size"}
    fetch(core.store.blobs, retained["digest"], tmp_path / "reproducer")
    assert (tmp_path / "reproducer" / "model.onnx").read_bytes() == b"a node"


def test_a_bundle_in_the_cache_stays_when_its_dump_is_made_later(jobs, model, answer, compiler):
    answer(submit_job(jobs, model).id)
    first, second = (submit_job(jobs, model, options={"dump": True}) for _ in range(2))
    answer(first.id)
    answer(second.id)
    assert [job.dump is not None for job in compiler.jobs] == [False, True]
    # What is measured and verified already is not measured again.
    assert compiler.jobs[1].request["options"]["verify"] is False
    assert now(jobs, first).cached
    assert now(jobs, first).profile == {"measured": True, "load_ms": 7.0}
    assert dump_of_build(jobs, first) == dump_of_build(jobs, second) is not None


def test_the_profile_of_a_job_leaves_out_why_families_declined(core, tmp_path):
    kernel = {"name": "k", "family": "matmul", "tile": "6x16", "declined": {"copy": "no"}}
    (tmp_path / "kernels.json").write_text(json.dumps({"kernels": [kernel]}))
    bundle = publish_bundle(core.store.blobs, tmp_path)
    attach(core.store, PROFILE, b'{"measured": true}', bundle.digest)
    outcome = results.bundle_outcome(core, bundle.digest, cached=False)
    assert outcome.profile["kernels"] == [{"name": "k", "family": "matmul", "tile": "6x16"}]


def test_timings_are_no_part_of_the_bundle_and_refer_to_it(core, jobs, model, answer):
    digests = set()
    for dims in ("1:4", "1:8"):
        job = jobs.submit(model, CompileRequest.of(dims={"n": dims}))
        answer(job.builds[0].id)
        digests.add(jobs.get(job.id).builds[0].artifact.digest)
    for digest in digests:
        assert "profile.json" not in bundle_files(read_document(core.store.blobs, digest))
        (measured,) = explaining.profiles_of(core.store, digest, REPOSITORY)
        assert (measured.load_ms, measured.digest is not None) == (7.0, True)


def test_several_machines_may_measure_one_bundle_and_nonsense_measured_nothing(core, tmp_path):
    (tmp_path / "model.so").write_bytes(b"a library")
    bundle = publish_bundle(core.store.blobs, tmp_path)
    for content in (
        b'{"measured": true, "measured_at": "2026-02", "load_ms": 2}',
        b'{"measured": true, "measured_at": "2026-01", "load_ms": 1}',
        b"nonsense",
    ):
        attach(core.store, PROFILE, content, bundle.digest)
    result = explaining.profiles_of(core.store, bundle.digest, REPOSITORY)
    assert [one.load_ms for one in result] == [None, 1.0, 2.0]
    assert "not JSON" in result[0].reason


def test_texts_that_no_database_takes_end_the_build_all_the_same(
    jobs, model, answer, compiler, endings
):
    """Node names are the model's: a NUL, or bytes that are no UTF-8."""

    def fail(cancelled):
        raise ImportFailed(
            "no such operator",
            reason="unsupported_op",
            node="a\0b\udcff",
            nodes={"a\0": ["\ud800"]},
            factor=float("nan"),
        )

    compiler.behaviour = fail
    job = jobs.submit(model, CompileRequest())
    answer(job.builds[0].id)
    (build,) = jobs.get(job.id).builds
    assert (build.state, build.attempts, endings) == (State.FAILED, 1, ["failed"])
    assert build.error.node == "a\\x00b\\udcff"
    assert build.error.details == {"nodes": {"a\\x00": ["\\ud800"]}, "factor": None}


def test_an_outcome_that_cannot_be_stored_is_a_failed_attempt(
    core, jobs, model, answer, endings, monkeypatch
):
    def refuse(*_):
        raise ValueError("too odd")

    monkeypatch.setattr(ending, "finish", refuse)
    job = jobs.submit(model, CompileRequest())
    for _ in range(core.settings.max_attempts):
        answer(job.builds[0].id)
    (build,) = jobs.get(job.id).builds
    assert (build.state, build.error.code, build.error.message) == (
        State.FAILED,
        "worker.error",
        "too odd",
    )
    assert endings == ["released"] * core.settings.max_attempts

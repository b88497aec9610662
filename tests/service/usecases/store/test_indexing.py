import json

from artifacts.errors import StoreError
from artifacts.oci import REPOSITORY
from relaxd.contract.request import CompileRequest
from relaxd.contract.states import State
from service.identity import DEFAULT
from service.usecases.builds import claiming
from service.usecases.store import holdings, indexing


def name_values(core, job, tenant=DEFAULT):
    """Resolve the job's tag, as registry clients of the tenant find it."""
    return holdings.view(core, tenant).references.resolve(REPOSITORY, f"job-{job.id}")


def end_job(jobs, model, answer, *targets):
    job = jobs.submit(model, CompileRequest(targets=targets))
    for build in job.builds:
        answer(build.id)
    return jobs.get(job.id)


def test_an_ended_job_has_one_index_over_its_targets(core, jobs, model, answer):
    job = end_job(jobs, model, answer, "x86-64-v3", "aarch64")
    document = json.loads(core.store.blobs.read(job.index.digest))
    listed = {
        entry["annotations"]["org.relaxd.target"]: entry["digest"]
        for entry in document["manifests"]
    }
    assert listed == {build.target: build.artifact.digest for build in job.builds}
    assert name_values(core, job) == job.index.digest
    assert jobs.get(job.id).index == job.index


def test_the_tag_is_there_before_anybody_looks_and_follows_each_build(core, jobs, model, answer):
    job = jobs.submit(model, CompileRequest(targets=("x86-64-v3", "aarch64")))
    for count, build in enumerate(job.builds, start=1):
        answer(build.id)
        digest = name_values(core, job)
        assert len(json.loads(core.store.blobs.read(digest))["manifests"]) == count
    assert jobs.get(job.id).index.digest == digest


def test_a_build_that_waited_for_an_equal_one_is_indexed_too(core, jobs, model, answer, runner):
    first = jobs.submit(model, CompileRequest(targets=("x86-64-v3",)))
    stored = claiming.take(core, first.builds[0].id, "worker")
    second = jobs.submit(model, CompileRequest(targets=("x86-64-v3",)))
    answer(second.builds[0].id)
    assert name_values(core, second) is None
    runner.run(stored)
    assert name_values(core, second) == name_values(core, first) is not None


def test_a_store_that_is_away_does_not_undo_a_build(core, jobs, model, answer, monkeypatch):
    def away(*arguments):
        raise StoreError("away")

    job = jobs.submit(model, CompileRequest(targets=("x86-64-v3",)))
    with monkeypatch.context() as patched:
        patched.setattr(indexing, "publish_index", away)
        answer(job.builds[0].id)
    assert name_values(core, job) is None
    assert jobs.get(job.id).state is State.SUCCEEDED
    assert name_values(core, job) == jobs.get(job.id).index.digest


def test_a_job_without_a_bundle_has_none(jobs, model, compiler, answer):
    waiting = jobs.submit(model, CompileRequest(targets=("native",)))
    assert jobs.get(waiting.id).index is None
    jobs.cancel(waiting.id)
    assert jobs.get(waiting.id).index is None

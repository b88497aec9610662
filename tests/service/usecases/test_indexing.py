import json

from artifacts.oci import REPOSITORY
from relaxd.contract.request import CompileRequest


def ended(jobs, model, answer, *targets):
    job = jobs.submit(model, CompileRequest(targets=targets))
    for build in job.builds:
        answer(build.id)
    return jobs.get(job.id)


def test_an_ended_job_has_one_index_over_its_targets(core, jobs, model, answer):
    job = ended(jobs, model, answer, "x86-64-v3", "aarch64")
    document = json.loads(core.store.blobs.read(job.index.digest))
    listed = {entry["annotations"]["org.relaxd.target"]: entry["digest"] for entry in document["manifests"]}
    assert listed == {build.target: build.artifact.digest for build in job.builds}
    assert core.store.references.resolve(REPOSITORY, f"job-{job.id}") == job.index.digest
    assert jobs.get(job.id).index == job.index


def test_a_job_without_a_bundle_has_none(jobs, model, compiler, answer):
    waiting = jobs.submit(model, CompileRequest(targets=("native",)))
    assert jobs.get(waiting.id).index is None
    jobs.cancel(waiting.id)
    assert jobs.get(waiting.id).index is None

"""The tags of jobs, which are rows of the database."""

import pytest

from artifacts.oci import REPOSITORY
from relaxd.contract.request import CompileRequest
from service.core import Core
from service.identity import DEFAULT
from service.jobs import Jobs
from service.usecases.store import holdings
from service.usecases.store.naming import JobTags
from service.usecases.tenants import tenants


@pytest.fixture
def ended(jobs: Jobs, model: str, answer) -> list[str]:
    """The tags of three jobs, sorted."""
    created = [jobs.submit(model, CompileRequest.of(dims={"n": number + 1})) for number in range(3)]
    for job in created:
        answer(job.builds[0].id)
    return sorted(f"job-{job.id}" for job in created)


def test_they_are_listed_in_pages(core: Core, ended: list[str]) -> None:
    references = holdings.view(core, DEFAULT).references
    core.store.references.tag(REPOSITORY, "a", "sha256:" + "0" * 64)
    core.store.references.tag(REPOSITORY, "v1", "sha256:" + "0" * 64)
    every = ["a", *ended, "v1"]
    assert references.tags(REPOSITORY) == every
    assert references.tags("relaxd/models") == []
    for position, after in enumerate(["", *every]):
        assert references.tags(REPOSITORY, after) == every[position:]
        assert references.tags(REPOSITORY, after, most=2) == every[position : position + 2]


@pytest.mark.parametrize("after", ["job", "job-", "job-\0", "job-z", "k"])
def test_any_text_may_be_the_last_that_was_seen(core: Core, ended: list[str], after: str) -> None:
    result = holdings.view(core, DEFAULT).references.tags(REPOSITORY, after)
    assert result == [tag for tag in ended if tag > after]


def test_a_tag_names_what_the_job_has(core: Core, jobs: Jobs, model: str, answer) -> None:
    names = JobTags(core, DEFAULT)
    job = jobs.submit(model, CompileRequest())
    assert names.resolve(REPOSITORY, f"job-{job.id}") is None
    assert names.tags(REPOSITORY, "", None) == []
    answer(job.builds[0].id)
    assert names.resolve(REPOSITORY, f"job-{job.id}") == jobs.get(job.id).index.digest
    for repository, tag in ((REPOSITORY, job.id), ("relaxd/own", f"job-{job.id}")):
        assert names.resolve(repository, tag) is None


def test_they_are_their_tenants_alone(core: Core, jobs: Jobs, ended: list[str]) -> None:
    tenants.create(core, "vision")
    theirs = JobTags(core, "vision")
    for repository in (REPOSITORY, "vision/bundles"):
        assert theirs.tags(repository, "", None) in ([], ())
        assert theirs.resolve(repository, ended[0]) is None


def test_what_the_store_says_of_a_job_gives_way(core: Core, jobs: Jobs, ended: list[str]) -> None:
    """Before its names were the service's own, whoever could push could move one."""
    core.store.references.tag(REPOSITORY, ended[0], "sha256:" + "0" * 64)
    digest = holdings.view(core, DEFAULT).references.resolve(REPOSITORY, ended[0])
    assert digest == jobs.get(ended[0].removeprefix("job-")).index.digest

"""Names of models, versions and aliases: numbers, moves, limits, tenants, and what a collection
leaves.
"""

import pytest

from artifacts.errors import BlobNotFound
from relaxd.contract.request import CompileRequest
from service.errors import (
    NothingBuilt,
    RegistryFull,
    UnknownJob,
    UnknownRegistered,
    VersionInUse,
)
from service.identity import DEFAULT
from service.jobs import Jobs
from service.usecases import auditing
from service.usecases.auditing import Change
from service.usecases.jobs.deleting import delete_tenant
from service.usecases.registry import models
from service.usecases.store import collecting, holdings
from service.usecases.tenants import tenants

MONTHS = 200 * 86400.0


def blob(core, data=b"a bundle", tenant=DEFAULT):
    return holdings.view(core, tenant).blobs.put(data).digest


def register(core, name="minilm", data=b"a bundle", tenant=DEFAULT, **more):
    return models.register(
        core, tenant, name, digest=blob(core, data, tenant), submitter="ci", **more
    )


def move(core, alias, version, name="minilm", tenant=DEFAULT):
    change = Change("release", "alias.move", "r1", {"status": 200})
    moved = models.move_alias(core, tenant, name, alias, version, change)
    assert change.written
    return moved


def test_versions_are_numbered_and_no_number_is_given_twice(core):
    first, second = register(core), register(core, labels={"commit": "1d"}, notes="int8")
    assert (first.version, second.version) == (1, 2)
    assert (second.submitter, second.labels, second.notes) == ("ci", {"commit": "1d"}, "int8")
    models.remove_version(core, DEFAULT, "minilm", 2)
    assert register(core).version == 3
    listed = models.list_versions(core, DEFAULT, "minilm")
    assert [one.version for one in listed] == [3, 1]
    assert models.list_versions(core, DEFAULT, "minilm", before=3, limit=1) == [listed[1]]


def test_an_alias_moves_and_the_audit_log_has_the_move(core):
    register(core), register(core, data=b"better")
    assert move(core, "prod", "1").previous is None
    moved = move(core, "prod", "latest")
    assert (moved.version, moved.previous, moved.moved_by) == (2, 1, "release")
    assert models.resolve(core, DEFAULT, "minilm", "prod").digest == blob(core, b"better")
    assert models.get_model(core, DEFAULT, "minilm").aliases == (moved,)
    newest, _ = auditing.list_entries(core, DEFAULT, 10)
    assert (newest.action, newest.subject, newest.principal) == (
        "alias.move",
        "minilm@prod",
        "release",
    )
    assert newest.detail == {"status": 200, "version": 2, "previous": 1}
    models.remove_alias(core, DEFAULT, "minilm", "prod")
    with pytest.raises(UnknownRegistered, match="minilm@prod is not registered"):
        models.resolve(core, DEFAULT, "minilm", "prod")


def test_a_version_that_an_alias_names_stays(core):
    register(core)
    move(core, "prod", "1")
    with pytest.raises(VersionInUse, match=r"minilm@1 .* named by the alias prod"):
        models.remove_version(core, DEFAULT, "minilm", 1)


def test_a_version_of_a_job_is_the_index_of_its_bundles(core, jobs, model, answer):
    job = jobs.submit(model, CompileRequest())
    with pytest.raises(NothingBuilt):
        models.register(core, DEFAULT, "net", job_id=job.id, submitter="ci")
    answer(job.builds[0].id)
    version = models.register(core, DEFAULT, "net", job_id=job.id, submitter="ci")
    assert (version.digest, version.job_id) == (jobs.get(job.id).index.digest, job.id)
    with pytest.raises(UnknownJob):
        models.register(core, DEFAULT, "net", job_id="0" * 16, submitter="ci")


def test_models_are_found_by_project_and_label(core):
    for name in ("a", "b", "c"):
        register(core, name)
    models.describe(core, DEFAULT, "b", project="search", labels={"team": "text", "x": "1"})
    models.describe(core, DEFAULT, "c", labels={"team": "text"})

    def names(**wanted):
        return [model.name for model in models.list_models(core, DEFAULT, **wanted)]

    assert names() == ["a", "b", "c"]
    assert names(after="a", limit=1) == ["b"]
    assert names(project="search") == ["b"]
    assert names(labels={"team": "text"}) == ["b", "c"]
    assert names(labels={"team": "text", "x": "1"}) == ["b"]
    assert names(labels={"team": "vision"}) == []


def test_what_is_not_registered(core):
    for call in (
        lambda: models.get_model(core, DEFAULT, "minilm"),
        lambda: models.describe(core, DEFAULT, "minilm", notes=""),
        lambda: models.remove_model(core, DEFAULT, "minilm"),
        lambda: models.remove_alias(core, DEFAULT, "minilm", "prod"),
        lambda: models.resolve(core, DEFAULT, "minilm", "9" * 30),
        lambda: move(core, "prod", "1"),
    ):
        with pytest.raises(UnknownRegistered):
            call()


def test_a_tenant_cannot_fill_the_database(core, monkeypatch):
    monkeypatch.setattr(models, "MOST_MODELS", 1)
    monkeypatch.setattr(models, "MOST_VERSIONS", 2)
    monkeypatch.setattr(models, "MOST_ALIASES", 1)
    register(core)
    with pytest.raises(RegistryFull, match="1 names of models"):
        register(core, "another")
    register(core)
    with pytest.raises(RegistryFull, match="2 versions of models"):
        register(core)
    move(core, "prod", "1")
    move(core, "prod", "2")
    with pytest.raises(RegistryFull, match="1 aliases of minilm"):
        move(core, "canary", "1")


def test_tenants_keep_apart(core):
    tenants.create(core, "vision")
    mine = blob(core, b"mine")
    with pytest.raises(BlobNotFound):
        models.register(core, "vision", "minilm", digest=mine, submitter="spy")
    register(core, data=b"mine")
    register(core, data=b"theirs", tenant="vision")
    move(core, "prod", "1")
    with pytest.raises(UnknownRegistered):
        models.resolve(core, "vision", "minilm", "prod")
    tags = holdings.view(core, "vision").references
    assert tags.tags("relaxd/models/minilm") == []
    assert tags.resolve("relaxd/models/minilm", "prod") is None
    assert tags.resolve("vision/models/minilm", "v1") == blob(core, b"theirs", "vision")
    delete_tenant(core, "vision")
    with pytest.raises(UnknownRegistered):
        models.get_model(core, "vision", "minilm")
    assert models.get_model(core, DEFAULT, "minilm").last_version == 1


def test_versions_and_aliases_are_tags(core):
    register(core), register(core, data=b"better")
    move(core, "prod", "1")
    references = holdings.view(core, DEFAULT).references
    repository = "relaxd/models/minilm"
    assert references.tags(repository) == ["prod", "v1", "v2"]
    assert references.tags(repository, "prod", 1) == ["v1"]
    assert references.resolve(repository, "prod") == blob(core)
    assert references.resolve(repository, "v2") == blob(core, b"better")
    assert references.resolve(repository, "latest") == blob(core, b"better")
    for absent in ("1", "v3", "V1", "canary"):
        assert references.resolve(repository, absent) is None


def test_a_registered_bundle_outlives_its_job(core, jobs: Jobs, model, answer, clock):
    job = jobs.submit(model, CompileRequest())
    answer(job.builds[0].id)
    digest = jobs.get(job.id).index.digest
    models.register(core, DEFAULT, "net", job_id=job.id, submitter="ci")
    clock.advance(MONTHS)
    assert collecting.run(core).expired_jobs == 1
    assert digest in set(collecting.roots(core))
    models.remove_model(core, DEFAULT, "net")
    assert digest not in set(collecting.roots(core))

"""Deletion of a tenant and of what it had."""

import pytest
from sqlalchemy import func, select

from relaxd.contract.request import CompileRequest
from relaxd.contract.states import State
from service.db.schema import builds, events, jobs, pins, tokens
from service.db.schema import holdings as holdings_table
from service.errors import (
    QuotaExceeded,
    StaleClaim,
    TenantBusy,
    TenantKept,
    UnknownJob,
    UnknownModel,
    UnknownTenant,
)
from service.identity import DEFAULT, Scope, bundles_of
from service.jobs import Jobs
from service.usecases.builds import claiming, ending
from service.usecases.jobs.deleting import delete_tenant
from service.usecases.store import collecting, holdings, pinning
from service.usecases.tenants import tenants
from service.usecases.tenants import tokens as signing_in

DAY = 86400.0
OWNED = (builds, holdings_table, jobs, pins, tokens)


@pytest.fixture
def vision(core):
    tenants.create(core, "vision")
    return Jobs(core, "vision")


def upload(core, tenant, data=b"a secret model"):
    return holdings.view(core, tenant).blobs.put(data).digest


def build(core, vision, answer):
    job = vision.submit(upload(core, "vision"), CompileRequest())
    answer(job.builds[0].id)
    return vision.get(job.id)


def rows_of(core, tenant):
    with core.reading() as tx:
        return {
            table.name: tx.connection.execute(
                select(func.count()).select_from(table).where(table.c.tenant == tenant)
            ).scalar_one()
            for table in OWNED
        }


def test_nothing_of_a_deleted_tenant_is_left(core, vision, answer):
    job = build(core, vision, answer)
    bundle = job.builds[0].artifact.digest
    issued = signing_in.create(core, "vision", "ci", [Scope.ADMIN])
    pinning.pin(core, bundle, who="me", why="", tenant="vision")
    core.store.references.tag("vision/models", "v1", bundle)
    assert all(rows_of(core, "vision").values())
    view = holdings.view(core, "vision")
    assert view.references.tags(bundles_of("vision")) == [f"job-{job.id}"]
    done = delete_tenant(core, "vision")
    assert (done.jobs, done.tokens, done.tags) == (1, 1, 2)
    assert not any(rows_of(core, "vision").values())
    with core.reading() as tx:
        assert tx.connection.execute(select(func.count()).select_from(events)).scalar_one() == 0
    assert signing_in.sign_in(core, issued.text) is None
    assert view.references.tags(bundles_of("vision")) == []
    assert core.store.references.referrers(bundles_of("vision"), bundle) == []
    assert not tenants.is_known(core, "vision")
    with pytest.raises(UnknownJob):
        vision.get(job.id)
    with pytest.raises(UnknownTenant):
        delete_tenant(core, "vision")


def test_its_blobs_go_with_the_garbage_but_not_what_others_hold(
    core, vision, answer, clock, monkeypatch
):
    class Time:
        time = staticmethod(clock)

    monkeypatch.setattr("artifacts.local.time", Time)
    job = build(core, vision, answer)
    shared = upload(core, "vision", b"of both")
    Jobs(core).submit(upload(core, DEFAULT, b"of both"), CompileRequest())
    delete_tenant(core, "vision")
    clock.advance(2 * DAY)
    collecting.run(core)
    assert core.store.blobs.has(shared)
    assert not core.store.blobs.has(job.model)
    assert not core.store.blobs.has(job.builds[0].artifact.digest)


def test_a_later_tenant_of_its_name_finds_nothing(core, vision, answer, compiler):
    old = build(core, vision, answer)
    delete_tenant(core, "vision")
    tenants.create(core, "vision")
    with pytest.raises(UnknownModel):
        vision.submit(old.model, CompileRequest())
    again = build(core, vision, answer)
    assert (again.builds[0].cached, len(compiler.jobs)) == (False, 2)
    assert holdings.view(core, "vision").references.tags("vision/models") == []


def test_what_it_had_does_not_become_everybodys(core, vision, answer):
    job = build(core, vision, answer)
    delete_tenant(core, "vision")
    assert core.store.blobs.has(job.model)
    assert not holdings.holds(core, DEFAULT, job.model)
    tenants.create(core, "another")
    assert not holdings.holds(core, DEFAULT, job.model)


def test_its_waiting_builds_are_cancelled_and_its_running_ones_are_waited_for(core, vision):
    model = upload(core, "vision")
    waiting = vision.submit(model, CompileRequest.of(targets=["x86-64-v4"]))
    running = vision.submit(model, CompileRequest())
    claim = claiming.take(core, running.builds[0].id, "worker")
    with pytest.raises(TenantBusy, match="1 of its builds"):
        delete_tenant(core, "vision")
    assert vision.get(waiting.id).state is State.CANCELLED
    assert vision.get(running.id).builds[0].cancel_requested
    ending.finish(core, claim, ending.CANCELLED)
    assert delete_tenant(core, "vision").jobs == 2
    with pytest.raises((StaleClaim, UnknownJob)):
        ending.finish(core, claim, ending.CANCELLED)


def test_nobody_submits_to_a_tenant_that_is_closing(core, vision):
    model = upload(core, "vision")
    claiming.take(core, vision.submit(model, CompileRequest()).builds[0].id, "worker")
    with pytest.raises(TenantBusy):
        delete_tenant(core, "vision")
    with pytest.raises(QuotaExceeded):
        vision.submit(model, CompileRequest())


def test_a_submission_to_a_tenant_that_is_gone_is_a_typed_error(core, vision):
    delete_tenant(core, "vision")
    model = upload(core, "vision")  # by a request that had begun before
    with pytest.raises(UnknownTenant):
        vision.submit(model, CompileRequest())
    tenants.create(core, "vision")
    assert not holdings.holds(core, "vision", model)


def test_the_operators_own_tenant_stays(core):
    with pytest.raises(TenantKept):
        delete_tenant(core, DEFAULT)

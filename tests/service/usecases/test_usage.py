"""Usage: added up by day, reported by tenant and part, removed with the tenant."""

from dataclasses import replace
from datetime import date

import pytest

from compiler.isolation.usage import StageUsage
from relaxd.contract.request import CompileRequest
from relaxd.contract.states import Stage
from service.core import Core
from service.domain import Claim
from service.identity import DEFAULT
from service.usecases.builds import claiming, scheduling
from service.usecases.jobs import deleting, submitting
from service.usecases.tenants import tenants, usage
from service.usecases.tenants.usage import Part

GIB = 1 << 30
FIRST = date(1970, 1, 1)


@pytest.fixture
def claim(core: Core, model: str) -> Claim:
    submitting.submit(core, model, CompileRequest.of(targets=["x86-64-v3"]), project="search")
    upcoming = scheduling.next_build(core, ("x86-64-v3",))
    taken = claiming.take(core, str(upcoming), "a worker")
    assert taken is not None
    assert taken.project == "search"
    return taken


def test_attempts_of_a_day_are_added_up(core: Core, claim: Claim, clock) -> None:
    stages = [StageUsage(Stage.PASS, 2.0, GIB, 1.5), StageUsage(Stage.CODEGEN, 4.0, 2 * GIB, 2.5)]
    usage.record(core, claim, stages, 100)
    usage.record(core, claim, stages[:1], 0)
    usage.record(core, claim, [], 0)
    clock.now += usage.DAY_S
    usage.record(core, claim, stages[:1], 0)
    passed, generated, published = usage.list_usage(core, None, FIRST, [Part.STAGE])
    assert (passed.stage, passed.attempts, passed.cpu_seconds) == ("pass", 3, 6.0)
    assert (generated.stage, generated.seconds) == ("codegen", 2.5)
    assert (published.stage, published.stored_bytes) == ("publish", 100)
    (row,) = usage.list_usage(core, None, FIRST, [Part.PROJECT, Part.TARGET, Part.TENANT])
    assert (row.project, row.target, row.tenant) == ("search", "x86-64-v3", DEFAULT)
    assert (row.memory_byte_seconds, row.stored_bytes) == (5 * GIB, 100)
    days = usage.list_usage(core, None, FIRST, [Part.DAY])
    assert sorted(row.cpu_seconds for row in days) == [2.0, 8.0]
    (last,) = usage.list_usage(core, None, max(row.day for row in days if row.day), [Part.DAY])
    assert last.cpu_seconds == 2.0


def test_each_tenant_sees_its_own_until_it_is_deleted(core: Core, claim: Claim) -> None:
    tenants.create(core, "vision")
    usage.record(core, claim, [StageUsage(Stage.PASS, 1.0)], 0)
    usage.record(core, replace(claim, tenant="vision"), [StageUsage(Stage.PASS, 3.0)], 7)
    (row,) = usage.list_usage(core, "vision", FIRST, [])
    assert (row.tenant, row.cpu_seconds, row.stored_bytes) == (None, 3.0, 7)
    everyone = usage.list_usage(core, None, FIRST, [Part.TENANT])
    assert [row.tenant for row in everyone] == ["vision", DEFAULT]
    assert usage.stored_bytes(core, "vision") == {"vision": 0}
    deleting.delete_tenant(core, "vision")
    assert usage.list_usage(core, "vision", FIRST, []) == []


def test_a_long_target_is_cut(core: Core, claim: Claim) -> None:
    usage.record(core, replace(claim, target="t" * 4000), [StageUsage(Stage.PASS, 1.0)], 0)
    (row,) = usage.list_usage(core, None, FIRST, [Part.TARGET])
    assert row.target == "t" * 200

import pytest
from sqlalchemy import event

from relaxd.contract.request import CompileRequest
from service.identity import DEFAULT, Limits
from service.usecases.builds import claiming, ending, scheduling
from service.usecases.store import holdings
from service.usecases.tenants import tenants

CAPABILITIES = ["native"]


@pytest.fixture
def queue(core, jobs, clock):
    """Queue builds of a tenant, each of its own model."""

    def queue(tenant, count):
        for number in range(count):
            clock.advance(1)
            model = holdings.view(core, tenant).blobs.put(f"{tenant} {number}".encode()).digest
            jobs.of(tenant).submit(model, CompileRequest())

    return queue


@pytest.fixture(autouse=True)
def _tenants(core):
    for name in ("a", "b"):
        tenants.create(core, name)


def start(core):
    """Claim what a free worker should take; the claim, or None."""
    build = scheduling.next_build(core, CAPABILITIES)
    return build and claiming.take(core, build, "worker")


def run(core):
    """Begin and end what a free worker should take; the tenant whose it was."""
    claim = start(core)
    ending.finish(core, claim, ending.CANCELLED)
    return claim.tenant


def test_whoever_queues_one_build_need_not_wait_for_the_fifty_of_another(core, queue):
    queue("a", 50)
    assert run(core) == "a"
    queue("b", 1)
    assert run(core) == "b"
    assert [run(core) for _ in range(3)] == ["a"] * 3


def test_tenants_take_turns_on_one_worker(core, queue):
    for name in ("a", "b", DEFAULT):
        queue(name, 4)
    order = [run(core) for _ in range(12)]
    for start_of_round in range(0, 12, 3):
        assert set(order[start_of_round : start_of_round + 3]) == {"a", "b", DEFAULT}


def test_turns_are_by_weight(core, queue):
    tenants.change(core, "a", weight=3.0)
    queue("a", 30)
    queue("b", 10)
    order = [run(core) for _ in range(40)]
    assert order[:20].count("a") == 15
    assert order.count("b") == 10


def test_idle_time_saves_no_turns_up(core, queue):
    queue("a", 20)
    assert [run(core) for _ in range(10)] == ["a"] * 10
    queue("b", 20)
    order = [run(core) for _ in range(10)]
    assert order.count("b") == 5


def test_whoever_runs_less_comes_first(core, queue):
    queue("a", 4)
    first = [start(core).tenant for _ in range(2)]
    queue("b", 4)
    order = [start(core).tenant for _ in range(4)]
    assert (first, order[:2], sorted(order[2:])) == (["a", "a"], ["b", "b"], ["a", "b"])


def test_a_tenant_runs_as_many_as_it_may_and_leaves_the_worker_to_others(core, queue):
    tenants.change(core, "a", limits=Limits(running=2))
    queue("a", 5)
    queue("b", 1)
    claims = [start(core) for _ in range(4)]
    assert sorted(claim.tenant for claim in claims if claim) == ["a", "a", "b"]
    assert claims[3] is None
    waiting = jobs_of(core, "a")
    assert claiming.take(core, waiting, "worker") is None, "also when its own doorbell rings"
    ending.finish(core, next(c for c in claims if c.tenant == "a"), ending.CANCELLED)
    assert start(core).tenant == "a"


def jobs_of(core, tenant):
    """A queued build of the tenant."""
    from sqlalchemy import select

    from service.db.schema import builds

    with core.reading() as tx:
        query = select(builds.c.id).where(builds.c.tenant == tenant, builds.c.state == "queued")
        return tx.connection.scalars(query.limit(1)).one()


def test_the_queue_is_not_read_through(core, queue):
    """EXPLAIN of what a free worker asks: no table but that of the tenants is scanned."""
    queue("a", 3)
    statements = []

    def note(connection, cursor, statement, parameters, context, executemany):
        statements.append((statement, parameters))

    engine = core.db._engine
    event.listen(engine, "before_cursor_execute", note)
    try:
        scheduling.next_build(core, CAPABILITIES)
    finally:
        event.remove(engine, "before_cursor_execute", note)
    if engine.dialect.name != "sqlite":
        pytest.skip("PostgreSQL scans small tables, whatever their indexes")
    with core.reading() as tx:
        for statement, parameters in statements:
            plan = tx.connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {statement}", parameters)
            steps = [row[3] for row in plan]
            assert not [step for step in steps if step.startswith("SCAN builds")], steps

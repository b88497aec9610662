"""No statement that requests and workers repeat reads a whole table."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from sqlalchemy import event, text

from relaxd.contract.failures import Failure
from relaxd.contract.request import CompileRequest
from relaxd.contract.states import Stage, State
from relaxd.contract.urgency import Urgency
from service.core import Core
from service.db.pools import declare
from service.domain import EventType, Outcome
from service.jobs import Jobs
from service.observability.metrics import JobCollector
from service.pools import read_pools
from service.usecases import chores, counting
from service.usecases.builds import claiming, ending, fleet, reporting, scheduling, sweeping
from service.usecases.readiness import Readiness
from service.usecases.store import expiring, pinning
from tests.service.db.filling import OLD, QUEUED, RUNNING, fill, queue_all
from tests.service.fakes import FakeClock

pytestmark = pytest.mark.slow

LARGE = frozenset({"jobs", "builds", "events"})
COST = 500.0
"""By PostgreSQL's measure, where reading one of the tables costs some thousand: what finds its rows
by an index and then drops most of them is no better than a scan.
"""


@dataclass
class Statements:
    """Every distinct statement, with the parameters that it first had."""

    parameters: dict[str, Any] = field(default_factory=dict)
    listening: bool = False

    def note(self, _connection: Any, _cursor: Any, sql: str, parameters: Any, *_: Any) -> None:
        if self.listening and sql.split()[0] in ("SELECT", "INSERT", "UPDATE", "DELETE", "WITH"):
            self.parameters.setdefault(sql, parameters)


@pytest.fixture
def statements(core: Core) -> Iterator[Statements]:
    noted = Statements()
    event.listen(core.db._engine, "before_cursor_execute", noted.note)
    yield noted
    event.remove(core.db._engine, "before_cursor_execute", noted.note)


def use_everything(core: Core, jobs: Jobs, model: str, clock: FakeClock) -> None:
    """Every use case that requests, workers or scrapers repeat."""
    request = CompileRequest.of(targets=("native", "x86-64-v3"))
    urgency = Urgency.of(3, "1m")
    job = jobs.submit(model, request, idempotency_key="once", urgency=urgency)
    jobs.submit(model, request, idempotency_key="once")
    jobs.get(job.id), jobs.list(), jobs.list(state=State.FAILED), jobs.events(job.id)
    jobs.marks([job.id, "j1", "j2"]), jobs.wait(job.id, 0.01), jobs.targets()
    work(core, jobs, model, clock)
    jobs.cancel(job.id)
    jobs.inspect(model, request)
    Readiness(core).check()
    registry = CollectorRegistry()
    registry.register(JobCollector(core))
    generate_latest(registry)
    counting.add(core, removed_blobs=1)
    chores.is_due(core, chores.GC, 3600)
    pinning.expire(core)
    expiring.count_old_jobs(core)
    assert expiring.expire_jobs(core, lambda: None) == OLD


def work(core: Core, jobs: Jobs, model: str, clock: FakeClock) -> None:
    """Act as workers on builds, among them equal ones, and with those of silent workers."""
    fleet.announce(core, "worker", "host", ["native"], 1)
    request = CompileRequest.of(dims={"n": 1})
    first, waiting, third = (jobs.submit(model, request).builds[0].id for _ in range(3))
    claim = claiming.take(core, first, "worker")
    assert claim
    assert not claiming.take(core, waiting, "worker")
    reporting.beat(core, claim)
    reporting.progress(core, claim, [(EventType.BUILD_LOG, {"line": "a line"})])
    failure = Failure(code="compile.failed", stage=Stage.LOAD, message="no", retryable=False)
    ending.finish(core, claim, Outcome(State.FAILED, error=failure))
    again = claiming.take(core, third, "worker")
    assert again
    ending.release(core, again, failure, attempted=False)
    assert claiming.take(core, third, "worker")
    clock.advance(2 * core.settings.lease_s)
    assert sweeping.reclaim(core) == 1
    sweeping.ring_again(core, ("native", "inspect"), 2)
    scheduling.next_build(core, ("native", "inspect"))
    assert sweeping.end_late(core) == 2
    fleet.depart(core, "worker")


def test_no_hot_statement_reads_a_whole_table(
    core: Core, jobs: Jobs, model: str, clock: FakeClock, statements: Statements
) -> None:
    fill(core.db)
    clock.now = 1_699_200_000.0
    statements.listening = True
    use_everything(core, jobs, model, clock)
    statements.listening = False
    assert len(statements.parameters) > 40
    explain = {"sqlite": _sqlite, "postgresql": _postgresql}[core.db.url.get_backend_name()]
    with core.db.read() as connection:
        complaints = {
            sql: result
            for sql, parameters in statements.parameters.items()
            if (result := explain(connection, sql, parameters))
        }
    assert complaints == {}


def test_the_view_of_the_pools_reads_no_more_than_waits_and_runs(core: Core) -> None:
    fill(core.db)
    declare(core.db, read_pools("here=*,!cuda-* cuda=cuda-*"))
    query = "SELECT builds FROM scaling WHERE pool = 'here'"
    with core.db.read() as connection:
        assert connection.exec_driver_sql(query).scalar_one() == QUEUED + RUNNING
        if core.db.url.get_backend_name() == "sqlite":
            steps = connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {query}").all()
            plan = [row.detail for row in steps]
            (reads,) = {step for step in plan if step.split()[1] == "b"} - {
                "SEARCH b USING COVERING INDEX ix_builds_due_at (state=? AND tenant=?)"
            }
            assert "INDEX ix_builds_" in reads
            assert not any(step.startswith("SCAN j") for step in plan)
            return
        explain = f"EXPLAIN (ANALYZE, FORMAT JSON) {query}"
        (document,) = connection.exec_driver_sql(explain).scalar_one()
    nodes = list(_nodes(document["Plan"]))
    assert "ix_builds_capability" in {node.get("Index Name") for node in nodes}
    assert not [node for node in nodes if node["Node Type"] == "Seq Scan" and _is_large(node)]
    rows = [node["Actual Rows"] * node["Actual Loops"] for node in nodes if _is_large(node)]
    assert max(rows) <= QUEUED + RUNNING


MOST_READ = 20
"""Rows of builds that a free worker reads to find its next one, of which two of three are others'.
"""


def test_a_worker_finds_its_next_build_among_many_by_the_order_of_an_index(
    core: Core, statements: Statements
) -> None:
    fill(core.db)
    queue_all(core.db)
    expected = _first_due(core)
    statements.listening = True
    assert scheduling.next_build(core, ("native", "inspect")) == expected
    assert sweeping.end_late(core) == 0
    statements.listening = False
    with core.db.read() as connection:
        for sql, parameters in statements.parameters.items():
            if connection.dialect.name == "sqlite":
                plan = connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {sql}", parameters).all()
                steps = [row.detail for row in plan]
                assert "USE TEMP B-TREE FOR ORDER BY" not in steps
                assert not [step for step in steps if step.startswith("SCAN builds")]
            else:
                explain = f"EXPLAIN (ANALYZE, FORMAT JSON) {sql}"
                (document,) = connection.exec_driver_sql(explain, parameters).scalar_one()
                nodes = [node for node in _nodes(document["Plan"]) if _is_large(node)]
                assert sum(map(_count_read, nodes)) <= MOST_READ, (sql, nodes)


def _first_due(core: Core) -> str:
    """The build that is first by a look at all of them."""
    query = text(
        "SELECT id FROM builds WHERE state = 'queued' AND capability = 'native' "
        "ORDER BY due_at, id LIMIT 1"
    )
    with core.db.read() as connection:
        return str(connection.execute(query).scalar_one())


def _count_read(node: dict[str, Any]) -> int:
    """The rows that a node of a plan read, whether it passed them on or not."""
    return int((node["Actual Rows"] + node.get("Rows Removed by Filter", 0)) * node["Actual Loops"])


def _is_large(node: dict[str, Any]) -> bool:
    return node.get("Relation Name") in LARGE


def _sqlite(connection: Any, sql: str, parameters: Any) -> list[str]:
    """The steps that read one of the large tables, or an index of it, from end to end."""
    first = parameters[0] if isinstance(parameters, list) else parameters
    plan = connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {sql}", first).all()
    return [
        row.detail
        for row in plan
        if row.detail.startswith("SCAN ") and row.detail.split()[1] in LARGE
    ]


def _postgresql(connection: Any, sql: str, parameters: Any) -> list[str]:
    """The nodes that scan a large table, and the whole if it costs too much."""
    first = parameters[0] if isinstance(parameters, list) else parameters
    result = connection.exec_driver_sql(f"EXPLAIN (FORMAT JSON) {sql}", first).scalar_one()
    (document,) = json.loads(result) if isinstance(result, str) else result
    plan = document["Plan"]
    scans = [
        f"{node['Node Type']} on {node['Relation Name']}"
        for node in _nodes(plan)
        if node["Node Type"] == "Seq Scan" and node["Relation Name"] in LARGE
    ]
    return [*scans, *([f"costs {plan['Total Cost']}"] if plan["Total Cost"] > COST else [])]


def _nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for child in plan.get("Plans", ()):
        yield from _nodes(child)

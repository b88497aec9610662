"""The fleet: which workers live, and so which targets the service can compile for."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from sqlalchemy import delete, insert, select, update

from compiler.targets import Target
from service.core import Core
from service.db import records
from service.db.schema import pools, workers
from service.domain import Kind, Worker
from service.errors import NoWorker, TargetNotServed


def announce(
    core: Core,
    name: str,
    hostname: str,
    capabilities: Sequence[str],
    slots: int,
    verifies: Mapping[str, str] | None = None,
    sandbox: str = "none",
    keys: Mapping[str, Any] | None = None,
) -> None:
    """Record that the worker lives, to be repeated well within a lease; removes workers long
    silent. `keys` is what others have to know of it to answer builds from the cache, if they may.
    """
    offers = {
        "keys": keys,
        "compiles": list(capabilities),
        "verifies": dict(verifies or {}),
        "sandbox": sandbox,
    }
    with core.writing() as tx:
        values = {"hostname": hostname, "capabilities": offers, "slots": slots, "seen_at": tx.now}
        if not tx.connection.execute(
            update(workers).where(workers.c.name == name).values(values)
        ).rowcount:
            tx.connection.execute(insert(workers).values(name=name, **values))
        tx.connection.execute(
            delete(workers).where(workers.c.seen_at < tx.now - 10 * core.settings.lease_s)
        )


def depart(core: Core, name: str) -> None:
    """Record that the worker ends."""
    with core.writing() as tx:
        tx.connection.execute(delete(workers).where(workers.c.name == name))


def live_workers(core: Core) -> list[Worker]:
    """Workers that announced themselves within the last lease."""
    with core.reading() as tx:
        query = (
            select(workers)
            .where(workers.c.seen_at > tx.now - core.settings.lease_s)
            .order_by(workers.c.name)
        )
        return [records.worker_from(row) for row in tx.connection.execute(query)]


def served_capabilities(core: Core) -> frozenset[str]:
    """The capabilities of all live workers."""
    return frozenset(name for worker in live_workers(core) for name in worker.capabilities)


def pools_of(core: Core) -> dict[str, str]:
    """The first declared pool for each capability: it has a worker soon after a build waits."""
    with core.reading() as tx:
        rows = tx.connection.execute(select(pools).order_by(pools.c.pool.desc())).all()
    return {row.capability: row.pool for row in rows}


def require(core: Core, capabilities: Mapping[str, str]) -> None:
    """Raises NoWorker or TargetNotServed unless a live worker or a declared pool has each target's
    capability.
    """
    able = served_capabilities(core) | pools_of(core).keys()
    if not able:
        raise NoWorker
    for target, capability in capabilities.items():
        if capability not in able:
            raise TargetNotServed(target, sorted(able - {Kind.INSPECT.value}))


def targets(core: Core) -> list[dict[str, Any]]:
    """See `Jobs.targets`."""
    living, declared = live_workers(core), pools_of(core)
    return [_described(target, living, declared) for target in core.compiler.targets()]


def waits_for_pool(pool: str) -> str:
    """Why a build waits, for people."""
    return f"waits for a worker of the pool {pool}, which starts when builds wait"


def _described(
    target: Target, living: Sequence[Worker], declared: Mapping[str, str]
) -> dict[str, Any]:
    """The registry's entry, the workers that compile it, how well each confines a build, and those
    that run what they compiled, by how.
    """
    pool = declared.get(target.capability)
    able = [worker for worker in living if target.capability in worker.capabilities]
    compiling = [worker.name for worker in able]
    return {
        **target.to_list(),
        "load": asdict(target.load),
        "workers": compiling,
        "sandboxes": {worker.name: worker.sandbox for worker in able},
        "verified_by": {
            worker.name: status for worker in living if (status := worker.verifies.get(target.name))
        },
        "note": None
        if compiling
        else f"a job for it {waits_for_pool(pool)}"
        if pool
        else f"no running worker compiles for {target.name}: a job for it waits",
    }

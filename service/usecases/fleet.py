"""The fleet: which workers live, what they compile for, and so which targets the service has."""

from collections.abc import Sequence
from typing import Any

from sqlalchemy import delete, insert, select, update

from service.core import Core
from service.db import records
from service.db.schema import workers
from service.domain import Worker


def announce(core: Core, name: str, hostname: str, capabilities: Sequence[str], slots: int) -> None:
    """Say that the worker lives; to be repeated well within a lease. Forgets workers long silent."""
    with core.writing() as tx:
        values = {"hostname": hostname, "capabilities": list(capabilities), "slots": slots, "seen_at": tx.now}
        if not tx.connection.execute(update(workers).where(workers.c.name == name).values(values)).rowcount:
            tx.connection.execute(insert(workers).values(name=name, **values))
        tx.connection.execute(delete(workers).where(workers.c.seen_at < tx.now - 10 * core.settings.lease_s))


def depart(core: Core, name: str) -> None:
    """Say that the worker ends."""
    with core.writing() as tx:
        tx.connection.execute(delete(workers).where(workers.c.name == name))


def live_workers(core: Core) -> list[Worker]:
    """Workers heard of within a lease."""
    with core.reading() as tx:
        query = select(workers).where(workers.c.seen_at > tx.now - core.settings.lease_s).order_by(workers.c.name)
        return [records.worker_from(row) for row in tx.connection.execute(query)]


def targets(core: Core) -> list[dict[str, Any]]:
    """See `Jobs.targets`."""
    living = live_workers(core)
    return [
        {
            "name": target.name,
            "arch": target.arch,
            "isa": list(target.isa),
            "status": target.status.value,
            "workers": [worker.name for worker in living if target.name in worker.capabilities],
        }
        for target in core.compiler.targets()
    ]

"""Counters in the database, which all processes share."""

from sqlalchemy import select, update

from service.core import Core
from service.db.schema import counters

REMOVED_BYTES, REMOVED_BLOBS, EXPIRED_JOBS = "removed_bytes", "removed_blobs", "expired_jobs"


def value_of(core: Core, name: str) -> int:
    """The counter's value."""
    with core.reading() as tx:
        query = select(counters.c.value).where(counters.c.name == name)
        return int(tx.connection.execute(query).scalar_one())


def add(core: Core, **amounts: int) -> None:
    """Add to counters by name."""
    with core.writing() as tx:
        for name, amount in sorted(amounts.items()):
            values = {"value": counters.c.value + amount}
            tx.connection.execute(update(counters).where(counters.c.name == name).values(values))

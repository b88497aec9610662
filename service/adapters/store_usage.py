"""The size of the store, by the counter in the database that all processes add to."""

from dataclasses import dataclass, replace

from sqlalchemy import update

from artifacts.quota import LimitedStore
from artifacts.store import Artifacts
from service.db.engine import Database
from service.db.schema import STORE_BYTES, counters
from service.settings import Settings

_MINE = counters.c.name == STORE_BYTES


@dataclass(frozen=True)
class CountedUsage:
    """`artifacts.quota.Usage` in the job database, an estimate: what the last collection counted,
    and what came since. Raises DatabaseUnavailable.
    """

    db: Database

    def take(self, amount: int, most: int) -> bool:
        """See `Usage.take`."""
        room = counters.c.value + amount <= most
        with self.db.write() as connection:
            values = {"value": counters.c.value + amount}
            taken = connection.execute(update(counters).where(_MINE, room).values(values))
            return taken.rowcount == 1

    def add(self, amount: int) -> None:
        """See `Usage.add`."""
        with self.db.write() as connection:
            values = {"value": counters.c.value + amount}
            connection.execute(update(counters).where(_MINE).values(values))


def limit_store(store: Artifacts, settings: Settings, db: Database) -> Artifacts:
    """The store with the quota and the reserve of the settings."""
    quota = None if settings.store_quota_mb is None else settings.store_quota_mb << 20
    blobs = LimitedStore(store.blobs, CountedUsage(db), quota, settings.reserve_bytes)
    return replace(store, blobs=blobs)

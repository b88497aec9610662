"""The size of the store, by the counter in the database that all processes add to."""

from dataclasses import dataclass, replace

from sqlalchemy import select, update

from artifacts.quota import LimitedStore
from artifacts.store import Artifacts
from service.db.engine import Database
from service.db.schema import STORE_BYTES, counters
from service.settings import Settings

_MINE = counters.c.name == STORE_BYTES


@dataclass(frozen=True)
class CountedUsage:
    """`artifacts.quota.Usage` in the job database; raises DatabaseUnavailable."""

    db: Database

    def bytes(self) -> int:
        """The estimate: what the last collection counted, and what came since."""
        with self.db.read() as connection:
            return int(connection.execute(select(counters.c.value).where(_MINE)).scalar_one())

    def add(self, amount: int) -> None:
        """Count a new blob."""
        with self.db.write() as connection:
            values = {"value": counters.c.value + amount}
            connection.execute(update(counters).where(_MINE).values(values))


def limit_store(store: Artifacts, settings: Settings, db: Database) -> Artifacts:
    """The store with the quota and the reserve of the settings."""
    quota = None if settings.store_quota_mb is None else settings.store_quota_mb << 20
    reserve = settings.store_reserve_mb << 20
    return replace(store, blobs=LimitedStore(store.blobs, CountedUsage(db), quota, reserve))

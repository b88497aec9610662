"""Metrics of the store and its garbage collection, from the job database at each scrape."""

from collections.abc import Iterator
from contextlib import suppress

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from sqlalchemy import select

from artifacts.errors import StoreError
from service.core import Core
from service.db.schema import STORE_BYTES, chores, counters
from service.usecases import chores as turns
from service.usecases import counting
from service.usecases.store import pinning

_COUNTERS = (
    (counting.REMOVED_BYTES, "relaxd_gc_removed_bytes", "Bytes that collections removed."),
    (counting.REMOVED_BLOBS, "relaxd_gc_removed_blobs", "Blobs that collections removed."),
    (counting.EXPIRED_JOBS, "relaxd_gc_expired_jobs", "Jobs removed after their retention."),
)


class StoreCollector(Collector):
    """The store's size, its quota, pins, and what collections have removed."""

    def __init__(self, core: Core) -> None:
        self._core = core

    def collect(self) -> Iterator[Metric]:
        """Read the database; raises DatabaseUnavailable."""
        with self._core.reading() as tx:
            rows = tx.connection.execute(select(counters)).all()
            values = {row.name: row.value for row in rows}
            last = select(chores.c.ran_at).where(chores.c.name == turns.GC)
            ran_at = tx.connection.execute(last).scalar_one()
        yield GaugeMetricFamily(
            "relaxd_store_bytes",
            "Estimate of the store's size: the last audit's count, and what came and went since.",
            value=values[STORE_BYTES],
        )
        if (quota := self._core.settings.store_quota_mb) is not None:
            yield GaugeMetricFamily(
                "relaxd_store_quota_bytes", "The most that the store may hold.", value=quota << 20
            )
        yield from self._quarantine()
        yield GaugeMetricFamily("relaxd_pins", "Pins.", value=len(pinning.list_pins(self._core)))
        for name, metric, text in _COUNTERS:
            yield CounterMetricFamily(metric, text, value=values[name])
        yield GaugeMetricFamily(
            "relaxd_gc_last_run_timestamp_seconds",
            "When the last collection began; 0 before the first.",
            value=ran_at,
        )

    def _quarantine(self) -> Iterator[Metric]:
        """Nothing where the store is away: the other figures need no store."""
        with suppress(StoreError):
            yield GaugeMetricFamily(
                "relaxd_store_quarantined_blobs",
                "Blobs that were found corrupt and set aside.",
                value=sum(1 for _ in self._core.store.blobs.quarantine()),
            )

    def describe(self) -> list[Metric]:
        """Nothing: registering must not read the database."""
        return []

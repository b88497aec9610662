"""Metrics: figures of the job database at each scrape, and each worker's own measurements."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.multiprocess import MultiProcessCollector
from prometheus_client.registry import Collector
from sqlalchemy import func, select

from compiler.isolation.usage import StageUsage
from relaxd.contract.states import State
from service.core import Core
from service.db.schema import ENDED, builds, counters
from service.domain import Claim
from service.usecases.builds.fleet import live_workers

_LIVE = [state for state in State if not state.terminal]
_BUCKETS = (0.1, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1800, 3600)


class JobCollector(Collector):
    """Builds that wait and run, those that ended by ending, the oldest queued build's age, and live
    workers; reads no more rows than wait and run.
    """

    def __init__(self, core: Core) -> None:
        self._core = core

    def collect(self) -> Iterator[Metric]:
        """Read the database; raises DatabaseUnavailable."""
        with self._core.reading() as tx:
            counts = tx.connection.execute(
                select(builds.c.state, func.count().label("builds"))
                .where(builds.c.state.in_(_LIVE))
                .group_by(builds.c.state)
            )
            states = {row.state: row.builds for row in counts}
            counted = select(counters).where(counters.c.name.startswith(ENDED, autoescape=True))
            ended = tx.connection.execute(counted).all()
            oldest = tx.connection.execute(
                select(func.min(builds.c.created_at)).where(builds.c.state == State.QUEUED)
            ).scalar_one()
            age = 0.0 if oldest is None else tx.now - oldest
        by_state = GaugeMetricFamily(
            "relaxd_builds", "Builds that wait or run, by state.", labels=("state",)
        )
        for state in _LIVE:
            by_state.add_metric((state.value,), states.get(state.value, 0))
        yield by_state
        by_ending = CounterMetricFamily(
            "relaxd_builds_ended",
            "Builds that ended; cached: without a compile of their own.",
            labels=("ending",),
        )
        for row in ended:
            by_ending.add_metric((row.name.removeprefix(ENDED),), row.value)
        yield by_ending
        yield GaugeMetricFamily(
            "relaxd_queue_oldest_seconds", "Age of the oldest queued build.", value=age
        )
        living = live_workers(self._core)
        yield GaugeMetricFamily(
            "relaxd_workers", "Workers heard of within a lease.", value=len(living)
        )
        yield GaugeMetricFamily(
            "relaxd_worker_slots",
            "Builds that these workers run at a time.",
            value=sum(worker.slots for worker in living),
        )

    def describe(self) -> list[Metric]:
        """Nothing: registering must not read the database."""
        return []


SHARED = "PROMETHEUS_MULTIPROC_DIR"
"""The variable, read when prometheus_client is imported, of a folder to which processes write what
they measure.
"""


def gather(registry: CollectorRegistry, folder: Path) -> None:
    """Add the sums of what processes with that folder in SHARED have measured, also those that
    have ended.
    """
    MultiProcessCollector(registry, path=str(folder))  # type: ignore[no-untyped-call]


class WorkerMetrics:
    """The metrics of one worker process."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.seconds = Histogram(
            "relaxd_build_seconds",
            "Time from claim to end.",
            ("target", "ending"),
            buckets=_BUCKETS,
            registry=registry,
        )
        # Operators make tenants, and there are few stages; targets and projects are free text.
        self._cpu = Counter(
            "relaxd_usage_cpu_seconds",
            "Processor time of compile processes.",
            ("tenant", "stage"),
            registry=registry,
        )
        self._memory = Counter(
            "relaxd_usage_memory_byte_seconds",
            "Resident bytes of compile processes, summed up over time.",
            ("tenant", "stage"),
            registry=registry,
        )
        self._stored = Counter(
            "relaxd_usage_stored_bytes", "Bytes of new bundles.", ("tenant",), registry=registry
        )
        self.reclaimed = Counter(
            "relaxd_builds_reclaimed",
            "Builds taken from workers that stopped responding.",
            registry=registry,
        )
        self.dropped = Counter(
            "relaxd_messages_dropped",
            "Messages of the broker that were no rings of a doorbell.",
            registry=registry,
        )
        self.rung_again = Counter(
            "relaxd_doorbells_repeated", "Doorbells rung again.", registry=registry
        )

    def add_usage(self, claim: Claim, stages: Sequence[StageUsage], stored_bytes: int) -> None:
        """Count what an attempt at a build used."""
        for used in stages:
            self._cpu.labels(claim.tenant, used.stage.value).inc(used.cpu_seconds)
            self._memory.labels(claim.tenant, used.stage.value).inc(used.memory_byte_seconds)
        self._stored.labels(claim.tenant).inc(stored_bytes)

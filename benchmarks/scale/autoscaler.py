"""Scales pools of workers as KEDA and the horizontal pod autoscaler do, by the queries and the
behavior of the manifests themselves, at a multiple of their speed.
"""

import math
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from multiprocessing.process import BaseProcess
from typing import Any

import psycopg
import yaml

from tools.kubernetes.pools import Pool, render

SYNC_S = 15.0
"""Seconds between two looks of the horizontal pod autoscaler."""
TOLERANCE = 0.1
"""A metric that is so near to what the pods stand for changes nothing."""
UP_PODS, UP_FACTOR = 4, 2
"""Kubernetes' own limits of a scale-up within SYNC_S."""

Start = Callable[[Pool], BaseProcess]


@dataclass(frozen=True)
class Behavior:
    """The numbers of a ScaledObject, its times divided by `speed`."""

    query: str
    target: float
    minimum: int
    maximum: int
    cooldown_s: float
    window_s: float
    pods_down: int
    down_period_s: float
    up_period_s: float

    @classmethod
    def of(cls, document: Mapping[str, Any], speed: float) -> "Behavior":
        """Read it from a manifest."""
        spec = document["spec"]
        (trigger,) = spec["triggers"]
        behavior = spec["advanced"]["horizontalPodAutoscalerConfig"]["behavior"]["scaleDown"]
        (policy,) = behavior["policies"]
        return cls(
            trigger["metadata"]["query"],
            float(trigger["metadata"]["targetQueryValue"]),
            spec["minReplicaCount"],
            spec["maxReplicaCount"],
            spec["cooldownPeriod"] / speed,
            behavior["stabilizationWindowSeconds"] / speed,
            policy["value"],
            policy["periodSeconds"] / speed,
            SYNC_S / speed,
        )


@dataclass
class Replicas:
    """The number of replicas of one pool, decided look by look."""

    behavior: Behavior
    count: int = 0
    _asked: deque[tuple[float, int]] = field(default_factory=deque)
    _changes: deque[tuple[float, int]] = field(default_factory=deque)
    _active_at: float = -math.inf

    def decide(self, metric: float, now: float) -> int:
        """The number of replicas from now on, for a metric that was read at `now`."""
        behavior = self.behavior
        if metric > 0:
            self._active_at = now
        if self.count == 0:
            return self._change(max(behavior.minimum, int(metric > 0)), now)
        if behavior.minimum == 0 and now - self._active_at >= behavior.cooldown_s:
            return self._change(0, now)
        wanted = math.ceil(metric / behavior.target)
        if abs(metric / (behavior.target * self.count) - 1) <= TOLERANCE:
            wanted = self.count
        # Between 1 and the maximum it is the autoscaler's to decide, below that KEDA's.
        wanted = min(behavior.maximum, max(behavior.minimum, wanted, 1))
        return self._change(self._limit(wanted, now), now)

    def _limit(self, wanted: int, now: float) -> int:
        behavior = self.behavior
        self._asked.append((now, wanted))
        while self._asked[0][0] < now - behavior.window_s:
            self._asked.popleft()
        stabilized = max(count for _, count in self._asked)
        if wanted >= self.count:
            before = self.count - self._changed(now - behavior.up_period_s, is_up=True)
            return min(wanted, max(before + UP_PODS, before * UP_FACTOR))
        down = self._changed(now - behavior.down_period_s, is_up=False)
        room = max(0, behavior.pods_down - down)
        return min(self.count, max(stabilized, self.count - room))

    def _changed(self, since: float, *, is_up: bool) -> int:
        """How many pods were added, or taken away, since then."""
        return sum(
            abs(change) for when, change in self._changes if when > since and (change > 0) == is_up
        )

    def _change(self, count: int, now: float) -> int:
        if count != self.count:
            self._changes.append((now, count - self.count))
        self.count = count
        return count


@dataclass
class Pods:
    """The pods of one pool. counts: at each look, the metric, the replicas and the processes.
    replaced: pods that ended by themselves, or were killed, in whose place another began.
    """

    pool: Pool
    replicas: Replicas
    start: Start
    alive: list[BaseProcess] = field(default_factory=list)
    ending: list[BaseProcess] = field(default_factory=list)
    counts: list[tuple[float, int, int]] = field(default_factory=list)
    started: int = 0
    replaced: int = 0

    def scale(self, metric: float, now: float) -> None:
        """Start and end pods, of which the newest end first."""
        wanted = self.replicas.decide(metric, now)
        gone = [process for process in self.alive if not process.is_alive()]
        self.replaced += len(gone)
        self.alive = [process for process in self.alive if process.is_alive()]
        self.ending = [process for process in self.ending if process.is_alive()]
        while len(self.alive) > wanted:
            doomed = self.alive.pop()
            doomed.terminate()
            self.ending.append(doomed)
        while len(self.alive) < wanted:
            self.alive.append(self.start(self.pool))
            self.started += 1
        self.counts.append((metric, wanted, len(self.alive) + len(self.ending)))


@dataclass
class Autoscaler:
    """All pools, in a thread while the block lasts; `failures` counts looks at a database that was
    away, at which nothing changes.
    """

    database: str
    pods: Mapping[str, Pods]
    every_s: float
    failures: int = 0
    _stop: threading.Event = field(default_factory=threading.Event)
    _connection: "psycopg.Connection[Any] | None" = None

    def __enter__(self) -> "Autoscaler":
        self._thread = threading.Thread(target=self._run, name="autoscaler", daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def is_at_minimum(self) -> bool:
        """True once each pool has as few pods as it may have, none of which is ending."""
        return all(
            bool(pods.counts) and pods.counts[-1][1:] == (pods.pool.min, pods.pool.min)
            for pods in self.pods.values()
        )

    def _run(self) -> None:
        while not self._stop.wait(self.every_s):
            for pods in self.pods.values():
                try:
                    metric = self._read(pods.replicas.behavior.query)
                except psycopg.Error:
                    self.failures += 1
                    self._connection = None
                else:
                    pods.scale(metric, time.monotonic())

    def _read(self, query: str) -> float:
        if self._connection is None:
            self._connection = psycopg.connect(self.database, autocommit=True, connect_timeout=2)
        row = self._connection.execute(query).fetchone()
        return float(row[0]) if row else 0.0


def read_behaviors(pools: Mapping[str, Pool], speed: float) -> Iterator[tuple[str, Behavior]]:
    """The behavior of each pool, from the manifests that describe it."""
    for document in yaml.safe_load_all(render(pools)):
        if document["kind"] == "ScaledObject":
            name = document["metadata"]["name"].removeprefix("relaxd-worker-")
            yield name, Behavior.of(document, speed)

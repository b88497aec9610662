"""Limits of requests a second, by tenant: a bucket of tokens each, in this process."""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from service.api.errors import TooManyRequests
from service.core import Core
from service.usecases.tenants import tenants

REMEMBERED_S = 5.0
BURST_S = 2.0
"""A bucket holds what comes in in that time, and one request at the least."""


@dataclass
class _Bucket:
    tokens: float
    filled_at: float


class Rates:
    """Counts the requests of each tenant; safe to use from several threads."""

    def __init__(self, core: Core, clock: Callable[[], float] = time.monotonic) -> None:
        self._core = core
        self._clock = clock
        self._lock = threading.Lock()
        self._limits: dict[str, float] = {}
        self._limits_until = 0.0
        self._buckets: dict[str, _Bucket] = {}

    @property
    def are_old(self) -> bool:
        """True if the limits have to be read again."""
        return self._clock() >= self._limits_until

    def take(self, tenant: str) -> None:
        """Count one request, by the limits read last; raises TooManyRequests for one too many."""
        now = self._clock()
        rate = self._limits.get(tenant)
        if rate is None:
            return
        most = max(1.0, rate * BURST_S)
        with self._lock:
            bucket = self._buckets.setdefault(tenant, _Bucket(most, now))
            bucket.tokens = min(most, bucket.tokens + (now - bucket.filled_at) * rate)
            bucket.filled_at = now
            if bucket.tokens < 1:
                raise TooManyRequests(rate, (1 - bucket.tokens) / rate)
            bucket.tokens -= 1

    def read(self) -> None:
        """Read the limits; raises DatabaseUnavailable."""
        limits = {tenant.name: tenant.limits.requests for tenant in tenants.list_all(self._core)}
        self._limits = {name: rate for name, rate in limits.items() if rate is not None}
        self._limits_until = self._clock() + REMEMBERED_S

"""Counts and times the calls of loaded models for Prometheus; needs prometheus-client."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from relaxd.errors import RelaxdError

if TYPE_CHECKING:
    from relaxd.loader.model import Model

_SECONDS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)


class CallMetrics:
    """The metrics of any number of models, told apart by the label `model`.

    relaxd_model_call_seconds: a histogram of calls that succeeded; relaxd_model_calls_running: a
    gauge; relaxd_model_failures_total: by the `code` of the error;
    relaxd_model_unverified_calls_total: calls with a dim above what the build's verification
    covered.
    """

    def __init__(self, registry: Any = None) -> None:
        from prometheus_client import REGISTRY, Counter, Gauge, Histogram

        self._lock = threading.Lock()
        self._counted: WeakKeyDictionary[Model, int] = WeakKeyDictionary()
        registry = REGISTRY if registry is None else registry
        labels = ["model"]
        self._seconds = Histogram(
            "relaxd_model_call_seconds",
            "How long calls take.",
            labels,
            registry=registry,
            buckets=_SECONDS,
        )
        self._running = Gauge(
            "relaxd_model_calls_running", "Calls under way.", labels, registry=registry
        )
        self._failures = Counter(
            "relaxd_model_failures_total",
            "Calls that failed.",
            [*labels, "code"],
            registry=registry,
        )
        self._unverified = Counter(
            "relaxd_model_unverified_calls_total",
            "Calls with a dim above what was verified.",
            labels,
            registry=registry,
        )

    @contextmanager
    def call(self, model: "Model") -> Iterator[None]:
        """Around one call of the model."""
        name = model.manifest.name
        self._running.labels(name).inc()
        began = time.perf_counter()
        try:
            yield
        except Exception as error:
            code = error.code if isinstance(error, RelaxdError) else type(error).__name__
            self._failures.labels(name, code).inc()
            raise
        else:
            self._seconds.labels(name).observe(time.perf_counter() - began)
        finally:
            self._running.labels(name).dec()
            self._unverified.labels(name).inc(self._newly_unverified(model))

    def _newly_unverified(self, model: "Model") -> int:
        """The unverified calls that are not counted yet; calls that run at once may count each
        other's, and none twice.
        """
        with self._lock:
            total = model.unverified_runs
            new = total - self._counted.get(model, 0)
            self._counted[model] = total
        return new

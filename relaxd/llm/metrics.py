"""Counts and times the answers of an engine for Prometheus."""

from collections.abc import Callable
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from relaxd.llm.cache_memory import CachePages
from relaxd.llm.engine import Engine
from relaxd.llm.generation import Generation
from relaxd.llm.vllm_metrics import VllmMetrics

_FIRST = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0)
_BETWEEN = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)


def _add_cache(engine: Engine, registry: CollectorRegistry) -> None:
    """Gauges of a KV cache in pages."""

    def add(name: str, text: str, read: Callable[[CachePages], float], **labels: str) -> None:
        gauge = gauges.get(name) or Gauge(name, text, list(labels), registry=registry)
        gauges[name] = gauge
        child = gauge.labels(**labels) if labels else gauge
        child.set_function(lambda: read(pages) if (pages := engine.cache_pages) else 0.0)

    gauges: dict[str, Gauge] = {}
    size, count = "relaxd_llm_cache_bytes", "relaxd_llm_cache_evictions"
    add(size, "Bytes of pages.", lambda pages: pages.memory_bytes, medium="memory")
    add(size, "Bytes of pages.", lambda pages: pages.disk_bytes, medium="disk")
    limit = "relaxd_llm_cache_limit_bytes"
    add(limit, "Bytes of pages at most.", lambda pages: pages.limit * pages.block_bytes)
    add("relaxd_llm_cached_sequences", "Sequences that have ended.", lambda pages: pages.stored)
    add(count, "Sequences that had to leave.", lambda pages: pages.evicted, to="nothing")
    add(count, "Sequences that had to leave.", lambda pages: pages.offloaded, to="disk")


class LlmMetrics:
    """relaxd_llm_first_token_seconds: from a request to its first token;
    relaxd_llm_between_tokens_seconds: from each token to the next; relaxd_llm_tokens_total: by
    `kind`, `prompt`, of these `reused`, `answer`, `drafted` or of these `accepted`;
    relaxd_llm_requests_total: by `finish`, or the code of an error;
    relaxd_llm_interruptions_total: completions that were preempted;
    relaxd_llm_requests_now: by `state`, `running` or `waiting`;
    relaxd_llm_cache_bytes: what pages of the KV cache take, by `medium`, `memory` or `disk`, with
    relaxd_llm_cache_limit_bytes for the memory; relaxd_llm_cached_sequences: those that have ended;
    relaxd_llm_cache_evictions: how many of these were dropped, or moved to the disk, by `to`.
    """

    def __init__(self, engine: Engine, name: str) -> None:
        self._registry = CollectorRegistry()
        self._vllm = VllmMetrics(engine, name, self._registry)
        shared: dict[str, Any] = {"registry": self._registry}
        self._first = Histogram(
            "relaxd_llm_first_token_seconds", "To the first token.", buckets=_FIRST, **shared
        )
        self._between = Histogram(
            "relaxd_llm_between_tokens_seconds", "Between tokens.", buckets=_BETWEEN, **shared
        )
        self._tokens = Counter("relaxd_llm_tokens", "Tokens.", ["kind"], **shared)
        self._ended = Counter("relaxd_llm_requests", "Requests that ended.", ["finish"], **shared)
        self._interrupted = Counter(
            "relaxd_llm_interruptions", "Completions that were preempted.", **shared
        )
        now = Gauge("relaxd_llm_requests_now", "Requests.", ["state"], **shared)
        now.labels("running").set_function(lambda: engine.load[0])
        now.labels("waiting").set_function(lambda: engine.load[1])
        if engine.cache_pages is not None:
            _add_cache(engine, self._registry)

    def count_completion(self, generation: Generation) -> None:
        """Count a completion that has ended."""
        self._vllm.count_completion(generation)
        self._ended.labels(generation.finish.value if generation.finish else "cancelled").inc()
        self._tokens.labels("prompt").inc(len(generation.prompt))
        self._tokens.labels("reused").inc(generation.reused or 0)
        self._tokens.labels("answer").inc(len(generation.tokens))
        self._tokens.labels("drafted").inc(generation.drafted)
        self._tokens.labels("accepted").inc(generation.accepted)
        self._interrupted.inc(generation.preempted)
        if generation.times:
            self._first.observe(generation.times[0] - generation.began)
        for one, following in zip(generation.times, generation.times[1:], strict=False):
            self._between.observe(following - one)

    def count_refusal(self, code: str) -> None:
        """Count a request that was refused, by the code of its error."""
        self._ended.labels(code).inc()

    def text(self) -> bytes:
        """Prometheus' text format."""
        return generate_latest(self._registry)

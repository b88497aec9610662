"""The metrics of an engine by the names that vLLM gives them, so that its dashboards show them."""

import itertools
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from relaxd.llm.engine import Engine
from relaxd.llm.generation import Finish, Generation

_SECONDS = (0.001, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 120)
_TOKENS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000, 50_000)
_REASONS = {Finish.CANCELLED: "abort"}
_COUNTERS = {
    "prompt_tokens": "Tokens of prompts.",
    "generation_tokens": "Tokens of completions.",
    "num_preemptions": "Completions that were preempted.",
    "prefix_cache_queries": "Tokens of prompts that were looked up among cached ones.",
    "prefix_cache_hits": "Tokens of prompts that were cached.",
    "spec_decode_num_draft_tokens": "Draft tokens.",
    "spec_decode_num_accepted_tokens": "Draft tokens that were accepted.",
}
_TIMES = {
    "time_to_first_token_seconds": "From a request to its first token.",
    "inter_token_latency_seconds": "From each token to the next.",
    "time_per_output_token_seconds": "From each token to the next, by its former name.",
    "e2e_request_latency_seconds": "From a request to its last token.",
    "request_queue_time_seconds": "From a request to the beginning of its prompt.",
    "request_prefill_time_seconds": "From the beginning of the prompt to the first token.",
    "request_decode_time_seconds": "From the first token to the last.",
}
_SIZES = {
    "request_prompt_tokens": "Tokens of the prompt of each request.",
    "request_generation_tokens": "Tokens of each completion.",
}


def _add_cache_info(engine: Engine, labels: dict[str, str], registry: CollectorRegistry) -> None:
    """The size of the KV cache, of one in pages: vLLM counts blocks of processors by this name."""
    if (pages := engine.cache_pages) is None:
        return
    values = {**labels, "block_size": str(pages.block), "num_gpu_blocks": str(pages.limit)}
    info = Gauge("vllm:cache_config_info", "The KV cache.", list(values), registry=registry)
    info.labels(**values).set(1)


class VllmMetrics:
    """vLLM's counters, gauges and histograms, with its labels `model_name` and `engine`."""

    def __init__(self, engine: Engine, name: str, registry: CollectorRegistry) -> None:
        labels = {"model_name": name, "engine": "0"}
        self._labels = labels

        def make(kind: Any, metric: str, text: str, **how: Any) -> Any:
            metric_of = kind(f"vllm:{metric}", text, list(labels), registry=registry, **how)
            return metric_of.labels(**labels)

        self._counters = {each: make(Counter, each, text) for each, text in _COUNTERS.items()}
        self._histograms = {
            each: make(Histogram, each, text, buckets=buckets)
            for group, buckets in ((_TIMES, _SECONDS), (_SIZES, _TOKENS))
            for each, text in group.items()
        }
        gauges = {
            "num_requests_running": lambda: engine.load[0],
            "num_requests_waiting": lambda: engine.load[1],
            "kv_cache_usage_perc": lambda: engine.cache_usage,
        }
        for metric, read in gauges.items():
            text = metric.replace("_", " ").capitalize()
            make(Gauge, metric, f"{text}.").set_function(read)
        _add_cache_info(engine, labels, registry)
        self._ended = Counter(
            "vllm:request_success",
            "Requests that ended.",
            [*labels, "finished_reason"],
            registry=registry,
        )

    def count_completion(self, generation: Generation) -> None:
        """Count a completion that has ended."""
        finish = generation.finish or Finish.CANCELLED
        reason = _REASONS.get(finish, finish.value)
        self._ended.labels(**self._labels, finished_reason=reason).inc()
        counts = {
            "prompt_tokens": len(generation.prompt),
            "generation_tokens": len(generation.tokens),
            "num_preemptions": generation.preempted,
            "prefix_cache_queries": len(generation.prompt),
            "prefix_cache_hits": generation.reused or 0,
            "spec_decode_num_draft_tokens": generation.drafted,
            "spec_decode_num_accepted_tokens": generation.accepted,
        }
        for name, count in counts.items():
            self._counters[name].inc(count)
        self._observe("request_prompt_tokens", len(generation.prompt))
        self._observe("request_generation_tokens", len(generation.tokens))
        self._time(generation)

    def _time(self, generation: Generation) -> None:
        times, entered = generation.times, generation.entered
        if not times or entered is None:
            return
        self._observe("time_to_first_token_seconds", times[0] - generation.began)
        self._observe("e2e_request_latency_seconds", times[-1] - generation.began)
        self._observe("request_queue_time_seconds", entered - generation.began)
        self._observe("request_prefill_time_seconds", times[0] - entered)
        self._observe("request_decode_time_seconds", times[-1] - times[0])
        for before, after in itertools.pairwise(times):
            self._observe("inter_token_latency_seconds", after - before)
            self._observe("time_per_output_token_seconds", after - before)

    def _observe(self, name: str, value: float) -> None:
        self._histograms[name].observe(value)

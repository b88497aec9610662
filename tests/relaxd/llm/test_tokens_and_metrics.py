"""Tokens over HTTP, and the metrics that vLLM's dashboards read."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from relaxd.llm import Engine
from relaxd.llm.server import create_app
from tests.relaxd.llm.endpoints import serving
from tests.relaxd.llm.models import LETTERS
from tests.support import plain_http


@pytest.fixture(scope="module")
def address(language_models: dict[str, Path]) -> Iterator[str]:
    with (
        Engine.open(language_models["filled"], language_models["tokenizer"], threads=1) as engine,
        serving(create_app(engine, "tiny")) as url,
    ):
        yield url


def post(address: str, path: str, document: Any) -> Any:
    return plain_http.post(f"{address}{path}", json=document)


def test_tokens_of_texts_and_back(address: str) -> None:
    tokens = [LETTERS.index(letter) for letter in "ab c"]
    answer = post(address, "/tokenize", {"prompt": "ab c", "return_token_strs": True}).json()
    assert answer == {"count": 4, "max_model_len": 64, "tokens": tokens, "token_strs": [*"ab c"]}
    assert post(address, "/detokenize", {"tokens": tokens}).json() == {"prompt": "ab c"}
    talk = [{"role": "user", "content": "Hi"}]
    chat = post(address, "/tokenize", {"messages": talk}).json()
    assert chat["count"] == len("user: Hi|assistant: ")
    assert chat["token_strs"] is None
    assert post(address, "/tokenize", {"prompt": ""}).json()["tokens"] == []


@pytest.mark.parametrize(
    ("path", "document"),
    [
        ("/tokenize", {}),
        ("/tokenize", []),
        ("/tokenize", {"prompt": 5}),
        ("/tokenize", {"prompt": "a" * 10_000}),
        ("/tokenize", {"messages": []}),
        ("/detokenize", {}),
        ("/detokenize", {"tokens": ["a"]}),
        ("/detokenize", {"tokens": [64]}),
        ("/detokenize", {"tokens": [-1]}),
        ("/detokenize", {"tokens": [True]}),
    ],
)
def test_what_is_refused(address: str, path: str, document: Any) -> None:
    assert post(address, path, document).status_code == 400


def read_samples(address: str) -> dict[str, float]:
    families = text_string_to_metric_families(plain_http.get(f"{address}/metrics").text)
    result = {}
    for family in families:
        for sample in family.samples:
            if sample.name.startswith("relaxd_llm_cache"):
                label = sample.labels.get("medium", sample.labels.get("to", ""))
                result[f"{sample.name}{label}"] = sample.value
            if sample.name.startswith("vllm:"):
                assert sample.labels["model_name"] == "tiny"
                reason = sample.labels.get("finished_reason", "")
                result[f"{sample.name}{reason}"] = sample.value
    return result


def test_metrics_by_vllms_names(address: str) -> None:
    before = read_samples(address)
    body = {"prompt": "abcdefgh" * 3, "max_tokens": 5, "temperature": 0, "logit_bias": {"63": -100}}
    for _ in range(2):
        assert post(address, "/v1/completions", body).status_code == 200
    deadline = time.monotonic() + 60
    while read_samples(address)["vllm:num_requests_running"]:
        assert time.monotonic() < deadline
    after = read_samples(address)

    def grown(name: str) -> float:
        return after[f"vllm:{name}"] - before.get(f"vllm:{name}", 0)

    assert grown("prompt_tokens_total") == 48
    assert grown("generation_tokens_total") == 10
    assert grown("prefix_cache_queries_total") == 48
    assert grown("prefix_cache_hits_total") == 23
    assert grown("request_success_totallength") == 2
    assert grown("inter_token_latency_seconds_count") == 8
    for name in ("time_to_first_token", "e2e_request_latency", "request_queue_time"):
        assert grown(f"{name}_seconds_count") == 2
    parts = ("request_queue_time", "request_prefill_time", "request_decode_time")
    total = grown("e2e_request_latency_seconds_sum")
    assert sum(grown(f"{part}_seconds_sum") for part in parts) == pytest.approx(total)
    assert after["vllm:kv_cache_usage_perc"] == 0
    assert after["relaxd_llm_cached_sequences"] >= 1
    assert 0 < after["relaxd_llm_cache_bytesmemory"] <= after["relaxd_llm_cache_limit_bytes"]
    assert after["relaxd_llm_cache_evictionsdisk"] == 0

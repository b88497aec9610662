"""Rows about ONNX files that are malformed, or reach for files of others."""

import os
import random
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from typing import Any

import httpx

from compiler.isolation import zygote
from service.adapters.compiler import ChildCompiler
from tests.robustness.canary import CONTENT, canary
from tests.robustness.hostile_models import hostile, locations, with_data_at
from tests.robustness.row import Outcome, Row, Run
from tests.service.live import QueueDoorbell, listening, quiet, services_over, working

WORKERS = 3
LIMITS = {"job_timeout_s": 30, "memory_mb": 2048}
REPORTED = 20


@contextmanager
def inspecting(run: Run, **limits: int) -> Iterator[httpx.Client]:
    """A service whose workers use confined processes, with those limits."""
    doorbell = QueueDoorbell()
    with ExitStack() as stack:
        stack.enter_context(quiet())
        stack.enter_context(zygote.keep_zygote())
        data = run.folder / "data"
        data.mkdir()
        services = stack.enter_context(
            services_over(data, ChildCompiler(), doorbell, **dict[str, Any](LIMITS | limits))
        )
        for number in range(WORKERS):
            stack.enter_context(working(services.core, doorbell, f"worker{number}"))
        url = stack.enter_context(listening(services))
        yield stack.enter_context(httpx.Client(base_url=url, timeout=180))


def _inspected(http: httpx.Client, data: bytes) -> tuple[str, str]:
    """`ok` or the code of the problem, and the answer's text; 5xx as its status."""
    answer = http.post("/v1/inspect", files={"model": ("m.onnx", data)}, params={"wait": 120})
    if answer.status_code >= 500:
        return str(answer.status_code), answer.text
    return ("ok" if answer.status_code == 200 else answer.json()["code"]), answer.text


def malformed_model(run: Run) -> Outcome:
    """Files in a few kinds of malice, each inspected by a worker."""
    files = list(hostile(random.Random(run.seed), run.count))
    wrong: list[str] = []
    tally: Counter[str] = Counter()

    def send(number: int) -> None:
        kind, data = files[number]
        code, text = _inspected(http, data)
        tally["5xx" if code.isdigit() else code.partition(".")[2] or code] += 1
        if code.isdigit():
            wrong.append(f"file {number}, {kind}: {text[:300]}")

    with inspecting(run) as http, ThreadPoolExecutor(WORKERS) as pool:
        list(pool.map(send, range(len(files))))
    counts = {"5xx": 0} | dict(tally.most_common(8))
    return Outcome(not wrong, counts, "\n".join(wrong[:REPORTED]))


def external_data(run: Run) -> Outcome:
    """Models whose weights lie in a file of others, by every way to name it."""
    with canary(run.folder / "canary") as watched, inspecting(run) as http:
        positions = locations(watched.path)
        random.Random(run.seed).shuffle(positions)
        models = [with_data_at(position, len(CONTENT)) for position in positions[: run.count]]
        with ThreadPoolExecutor(WORKERS) as pool:
            answers = list(pool.map(lambda data: _inspected(http, data), models))
        opened = watched.count_opened()
        os.close(os.open(watched.path, os.O_RDONLY))
        assert watched.count_opened() > 0, "the canary does not sing"
    wrong = [
        f"{position[:100]!r}: {code} {text[:300]}"
        for position, (code, text) in zip(positions, answers, strict=False)
        if code.isdigit() or code == "ok" or CONTENT.decode() in text
    ]
    counts = {"refused": run.count - len(wrong), "canary opened": opened}
    return Outcome(not wrong and not opened, counts, "\n".join(wrong[:REPORTED]))


THREADS = "Worker threads stand in for worker processes."

ROWS = (
    Row(
        "malformed-onnx",
        "mutated, truncated, nested and oversized ONNX files end as a typed error or a report, "
        "never as 5xx, and the workers go on",
        2000,
        malformed_model,
        THREADS,
    ),
    Row(
        "external-data",
        "weights outside the model's folder are refused, and no file there is opened",
        60,
        external_data,
        THREADS,
    ),
)

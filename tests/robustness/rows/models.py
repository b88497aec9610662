"""Rows about ONNX files that are malformed, or reach for files of others."""

import os
import random
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import httpx
import onnx

from compiler.isolation import zygote
from service.adapters.compiler import ChildCompiler
from tests.e2e.graphs import dense
from tests.robustness.canary import CONTENT, canary
from tests.robustness.hostile_models import hostile, locations, with_data_at
from tests.robustness.row import Outcome, Row, Run
from tests.service.live import QueueDoorbell, listening, quiet, services_over, working

WORKERS = 3
LIMITS = {"job_timeout_s": 30, "memory_mb": 2048}
REPORTED = 20


@dataclass(frozen=True)
class Inspection:
    """A service that inspects and compiles, and its workers."""

    http: httpx.Client
    workers: Sequence[threading.Thread]

    def check(self) -> list[str]:
        """Find workers that ended, and sound models that are refused."""
        ended = sum(not worker.is_alive() for worker in self.workers)
        wrong = [f"{ended} of {len(self.workers)} workers ended"] if ended else []
        with ThreadPoolExecutor(WORKERS) as pool:
            answers = list(pool.map(self._inspect_sound, range(WORKERS)))
        return wrong + [
            f"a sound model: {code} {text[:300]}" for code, text in answers if code != "ok"
        ]

    def _inspect_sound(self, number: int) -> tuple[str, str]:
        sound = onnx.load_from_string(dense())
        sound.doc_string = f"number {number}, equal to no other"
        return self.inspect(sound.SerializeToString())

    def inspect(self, data: bytes) -> tuple[str, str]:
        """`ok` or the code of the problem, and the answer's text; 5xx as its status."""
        files, wait = {"model": ("m.onnx", data)}, {"wait": 120}
        answer = self.http.post("/v1/inspect", files=files, params=wait)
        if answer.status_code >= 500:
            return str(answer.status_code), answer.text
        return ("ok" if answer.status_code == 200 else answer.json()["code"]), answer.text


@contextmanager
def inspecting(run: Run, **settings: Any) -> Iterator[Inspection]:
    """A service whose workers use confined processes, with limits and other settings."""
    doorbell = QueueDoorbell()
    with ExitStack() as stack:
        stack.enter_context(quiet())
        stack.enter_context(zygote.keep_zygote())
        data = run.folder / "data"
        data.mkdir()
        services = stack.enter_context(
            services_over(data, ChildCompiler(), doorbell, **(LIMITS | settings))
        )
        workers = [
            stack.enter_context(working(services.core, doorbell, f"worker{number}"))
            for number in range(WORKERS)
        ]
        url = stack.enter_context(listening(services))
        yield Inspection(stack.enter_context(httpx.Client(base_url=url, timeout=180)), workers)


def malformed_model(run: Run) -> Outcome:
    """Files in a few kinds of malice, each inspected by a worker."""
    files = list(hostile(random.Random(run.seed), run.count))
    wrong: list[str] = []
    tally: Counter[str] = Counter()

    def send(number: int) -> None:
        kind, data = files[number]
        code, text = inspection.inspect(data)
        tally["5xx" if code.isdigit() else code.partition(".")[2] or code] += 1
        if code.isdigit():
            wrong.append(f"file {number}, {kind}: {text[:300]}")

    with inspecting(run) as inspection:
        with ThreadPoolExecutor(WORKERS) as pool:
            list(pool.map(send, range(len(files))))
        wrong += inspection.check()
    counts = {"5xx": 0} | dict(tally.most_common(8))
    return Outcome(not wrong, counts, "\n".join(wrong[:REPORTED]))


def external_data(run: Run) -> Outcome:
    """Models whose weights lie in a file of others, by every way to name it."""
    with canary(run.folder / "canary") as watched, inspecting(run) as inspection:
        positions = locations(watched.path)
        random.Random(run.seed).shuffle(positions)
        models = [with_data_at(position, len(CONTENT)) for position in positions[: run.count]]
        with ThreadPoolExecutor(WORKERS) as pool:
            answers = list(pool.map(inspection.inspect, models))
        stopped = inspection.check()
        opened = watched.count_opened()
        os.close(os.open(watched.path, os.O_RDONLY))
        assert watched.count_opened() > 0, "the canary does not sing"
    wrong = [
        f"{position[:100]!r}: {code} {text[:300]}"
        for position, (code, text) in zip(positions, answers, strict=False)
        if code.isdigit() or code == "ok" or CONTENT.decode() in text
    ]
    counts = {"refused": len(models) - len(wrong), "canary opened": opened}
    wrong += stopped
    return Outcome(not wrong and not opened, counts, "\n".join(wrong[:REPORTED]))


THREADS = "Worker threads stand in for worker processes."

ROWS = (
    Row(
        "malformed-onnx",
        "mutated, truncated, nested and oversized ONNX files end as a typed error or a report, "
        "never as 5xx, and the workers go on: none has ended, and sound files are inspected after",
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
        minimums={"refused": 1},
    ),
)

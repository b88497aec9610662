"""Rows about small models that ask for more than the machine has."""

import random
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import datetime
from typing import Any

import httpx
import psutil

from tests.robustness.bombs import BOMBS
from tests.robustness.row import Outcome, Row, Run, p99
from tests.robustness.rows.models import THREADS, WORKERS, inspecting

MOST_BYTES = 1 << 20
SECONDS, MEMORY_MB = 5, 1024
ENDING_S = 2
"""How long a build may take to end once it is stopped."""
MOST_P99_MS = 1000
PROBE_S = 0.05


class _Watch:
    """How long the API takes to answer meanwhile, and how much memory the builds have."""

    def __init__(self, http: httpx.Client) -> None:
        self._http = http
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.seconds: list[float] = []
        self.most_bytes = 0

    def __enter__(self) -> "_Watch":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stop.wait(PROBE_S):
            began = time.monotonic()
            self._http.get("/v1/jobs", params={"limit": 1}).raise_for_status()
            self.seconds.append(time.monotonic() - began)
            self.most_bytes = max(self.most_bytes, self._memory())

    def _memory(self) -> int:
        """Memory of its own of the largest process among our descendants."""
        sizes = [0]
        for process in psutil.Process().children(recursive=True):
            with suppress(psutil.Error):
                # What a fork shares with its origin is not its own.
                memory = process.memory_info()
                sizes.append(memory.rss - memory.shared)
        return max(sizes)

    def p99(self) -> float:
        return p99(self.seconds)


def bombs(run: Run) -> Outcome:
    """Compile each bomb."""
    draw = random.Random(run.seed)
    chosen = [(bomb.__name__, bomb(draw)) for bomb in draw.choices(BOMBS, k=run.count)]
    assert all(len(data) < MOST_BYTES for _, data in chosen)
    tally: Counter[str] = Counter()
    wrong, longest = list[str](), [0.0]

    def send(bomb: tuple[str, bytes]) -> None:
        name, data = bomb
        answer = inspection.http.post(
            "/v1/compile", files={"model": ("m", data)}, params={"wait": 300}
        )
        (build,) = answer.json()["builds"]
        failure = build["error"] or {"code": "published"}
        tally[failure["code"]] += 1
        longest.append(seconds := _seconds(build))
        if answer.status_code != 200 or seconds > SECONDS + ENDING_S:
            wrong.append(f"{name}: {answer.status_code} after {seconds:.1f} s, {failure}")

    limits = {"job_timeout_s": SECONDS, "memory_mb": MEMORY_MB}
    with inspecting(run, **limits) as inspection:
        with _Watch(inspection.http) as watch, ThreadPoolExecutor(WORKERS) as pool:
            list(pool.map(send, chosen))
        wrong += inspection.check()
    counts = {
        "longest s": round(max(longest), 1),
        "most MiB": watch.most_bytes >> 20,
        "API p99 ms": round(1000 * watch.p99()),
        **tally,
    }
    return Outcome(not wrong, counts, "\n".join(wrong))


def _seconds(build: dict[str, Any]) -> float:
    """How long the build took; 0 for one that has an equal one's result."""
    if not build["started_at"]:
        return 0.0
    began, ended = (datetime.fromisoformat(build[f"{word}_at"]) for word in ("started", "finished"))
    return (ended - began).total_seconds()


ROWS = (
    Row(
        "bombs",
        f"models of less than 1 MB that ask for far more end {ENDING_S} s after their limit of "
        f"{SECONDS} s at the latest, none takes more than its {MEMORY_MB} MiB, the API answers "
        f"meanwhile with a p99 of at most {MOST_P99_MS} ms, and the workers go on",
        50,
        bombs,
        THREADS + " Memory is looked at each 0.05 s.",
        maximums={
            "longest s": SECONDS + ENDING_S,
            "most MiB": MEMORY_MB,
            "API p99 ms": MOST_P99_MS,
        },
    ),
)

"""Clients that submit and ask without pause, and count what they are answered."""

import random
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any

import httpx

from tests.robustness.site import Site
from tests.robustness.stub import model

TIMEOUT_S = 60.0
PAUSE_S = 0.1


@dataclass
class Clients:
    """Threads, while the block lasts, that submit at most `limit` jobs to the API at `url`, each
    until it is accepted, and ask for jobs meanwhile. A lost connection and a retryable 503 are
    what they put up with.

    accepted: the job's id by its Idempotency-Key. answers: by status; `lost` connections.
    surprises: every other answer above 499. unhinted: answers above 499 that do not say what to do.
    refused: submits that were answered 503.
    """

    here: Site
    url: str
    limit: int = 10**6
    seconds: float = 0.1
    threads: int = 3
    accepted: dict[str, str] = field(default_factory=dict)
    answers: Counter[str] = field(default_factory=Counter)
    surprises: list[str] = field(default_factory=list)
    unhinted: int = 0
    refused: int = 0
    _stop: threading.Event = field(default_factory=threading.Event)
    _running: list[threading.Thread] = field(default_factory=list)

    def __enter__(self) -> "Clients":
        for number in range(self.threads):
            thread = threading.Thread(target=self._run, args=(number,), daemon=True)
            self._running.append(thread)
            thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stop.set()
        for thread in self._running:
            thread.join()

    def have(self, accepted: int) -> bool:
        """True if so many jobs were accepted."""
        return len(self.accepted) >= accepted

    def _run(self, number: int) -> None:
        draw, turn = random.Random(number), 0
        with httpx.Client(timeout=TIMEOUT_S) as http:
            while not self._stop.wait(PAUSE_S):
                if len(self.accepted) < self.limit:
                    self._submit(http, f"{number}-{turn}", draw)
                    turn += 1
                self._snapshot(http, draw)

    def _submit(self, http: httpx.Client, key: str, draw: random.Random) -> None:
        content = model(self.here.ledger, draw.uniform(0, 2 * self.seconds), key=key)
        files = {"model": ("model.onnx", content), "request": (None, "{}")}
        headers = {"Idempotency-Key": f"load-{key}"}
        while not self._stop.is_set():
            answer = self._ask(http, "POST", "/v1/compile", files=files, headers=headers)
            if answer is not None and answer.is_success:
                self.accepted[key] = answer.json()["id"]
                return
            self._stop.wait(PAUSE_S)

    def _snapshot(self, http: httpx.Client, draw: random.Random) -> None:
        ids = list(self.accepted.values())
        job = f"/v1/jobs/{draw.choice(ids)}" if ids else "/v1/jobs"
        for path in (job, f"{job}?wait=0.2", "/v1/jobs", "/v1/targets", "/metrics", "/readyz"):
            if draw.random() < 0.3:
                self._ask(http, "GET", path)

    def _ask(
        self, http: httpx.Client, method: str, path: str, **what: Any
    ) -> httpx.Response | None:
        try:
            answer = http.request(method, self.url + path, **what)
        except httpx.TransportError:
            self.answers["lost"] += 1
            time.sleep(PAUSE_S)
            return None
        self.answers[str(answer.status_code)] += 1
        self.refused += answer.status_code == 503 and method == "POST"
        self.unhinted += answer.status_code >= 500 and not answer.json().get("hint")
        if answer.status_code >= 500 and not _retryable(answer):
            self.surprises.append(f"{method} {path}: {answer.status_code} {answer.text[:500]}")
        return answer


def _retryable(answer: httpx.Response) -> bool:
    return (
        answer.status_code == 503
        and "Retry-After" in answer.headers
        and answer.json()["retryable"] is True
    )

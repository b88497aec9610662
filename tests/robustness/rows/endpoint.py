"""A row about the endpoint of a language model: hostile requests beside honest clients."""

import json
import random
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import cycle
from pathlib import Path
from typing import Any

import httpx
import psutil

from tests.relaxd.llm.models import LETTERS, build, tokenizer
from tests.robustness.hostile_requests import KINDS, REFUSED, Hostile
from tests.robustness.row import Outcome, Row, Run, p99
from tests.robustness.site import until
from tests.support import plain_http

CLIENTS, ATTACKERS = 20, 6
PACE_S = 0.6
"""From one hostile request to the next, so that 1,000 take ten minutes."""
LEAST_S = 10.0
START_S, END_S = 120.0, 60.0
TIMEOUT_S = 60.0
MOST_SLOWER = 2.0
MOST_GROWTH = 1 << 30
REPORTED = 20


def questions() -> list[dict[str, Any]]:
    """Requests with one answer each: greedy ones, some that draw by a seed, some in a form."""
    draw, result = random.Random(44), []
    pattern = {"type": "grammar", "grammar": {"syntax": "regex", "definition": "[a-f]{4}[0-9]{2}"}}
    for number in range(40):
        prompt = "".join(draw.choices(LETTERS[:36], k=draw.randint(1, 30)))
        asked: dict[str, Any] = {"prompt": prompt, "max_tokens": draw.randint(4, 24)}
        asked |= {"temperature": 0} if number % 2 else {"temperature": 0.8, "seed": number}
        asked |= {"response_format": pattern} if number % 5 == 0 else {}
        result.append(asked)
    return result


@dataclass
class Honest:
    """Clients that ask what has one answer, and compare; `first`: the seconds to each first token;
    `wrong`: answers of another text, and requests that were refused.
    """

    url: str
    expected: Mapping[int, str] = field(default_factory=dict)
    first: list[float] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    _stop: threading.Event = field(default_factory=threading.Event)

    @contextmanager
    def running(self) -> Iterator["Honest"]:
        """CLIENTS of them, for as long as the context lasts."""
        self._stop.clear()
        threads = [
            threading.Thread(target=self._run, args=(number,), daemon=True)
            for number in range(CLIENTS)
        ]
        for thread in threads:
            thread.start()
        try:
            yield self
        finally:
            self._stop.set()
            for thread in threads:
                thread.join()

    def _run(self, number: int) -> None:
        asked = questions()
        with plain_http.Client(base_url=self.url, timeout=TIMEOUT_S) as http:
            for index in cycle(range(number, number + len(asked))):
                index %= len(asked)
                if self._stop.is_set():
                    return
                try:
                    text, seconds = ask(http, asked[index])
                except (httpx.HTTPError, KeyError) as error:
                    self.wrong.append(f"question {index} had no answer: {error!r}")
                    self._stop.wait(1)
                    continue
                self.first.append(seconds)
                if text != self.expected[index]:
                    self.wrong.append(f"question {index} was answered by {text!r}")
                self._stop.wait(0.02)


def ask(http: httpx.Client, asked: Mapping[str, Any]) -> tuple[str, float]:
    """The text of an answer that is streamed, and the seconds to its first token; raises
    httpx.HTTPError, and KeyError for a stream that ends by an error.
    """
    began, first, texts = time.monotonic(), 0.0, []
    body = {**asked, "stream": True}
    with http.stream("POST", "/v1/completions", json=body) as answer:
        answer.raise_for_status()
        for line in answer.iter_lines():
            if not line.startswith("data: {"):
                continue
            first = first or time.monotonic() - began
            texts.append(json.loads(line.removeprefix("data: "))["choices"][0]["text"])
    return "".join(texts), first


@dataclass
class Attack:
    """`count` hostile requests, one each PACE_S; answers by kind and status."""

    url: str
    count: int
    seed: int
    answers: Counter[str] = field(default_factory=Counter)
    sent: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)

    def run(self) -> None:
        """Send all; a request that takes long holds up no other kind's."""
        began, names = time.monotonic(), list(KINDS)
        lock, numbers = threading.Lock(), iter(range(self.count))

        def work() -> None:
            hostile = Hostile(self.url)
            while True:
                with lock:
                    number = next(numbers, None)
                if number is None:
                    return
                time.sleep(max(0.0, began + number * PACE_S - time.monotonic()))
                self._send(hostile, names[number % len(names)], number)

        threads = [threading.Thread(target=work, daemon=True) for _ in range(ATTACKERS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def _send(self, hostile: Hostile, kind: str, number: int) -> None:
        try:
            status = KINDS[kind](hostile, random.Random(f"{self.seed} {number}"))
        except OSError as error:
            self.wrong.append(f"{kind} {number} could not connect: {error}")
            return
        self.sent[kind] += 1
        self.answers[f"{status // 100}xx" if status else "closed"] += 1
        if status == 500 or (kind in REFUSED and status not in REFUSED[kind]):
            self.wrong.append(f"{kind} {number}: {status}")


@contextmanager
def endpoint(folder: Path) -> Iterator[tuple[str, psutil.Process]]:
    """`relaxd llm` over a small model, and its process."""
    port, log = folder / "port", folder / "log"
    command = [sys.executable, "-m", "relaxd", "llm", str(build(folder, "filled"))]
    command += ["--tokenizer", str(tokenizer(folder / "tokenizer")), "--sequences", "4"]
    command += ["--port", "0", "--port-file", str(port), "--threads", "1"]
    with log.open("w") as written:
        process = subprocess.Popen(command, stdout=written, stderr=written)
    try:
        until(lambda: port.exists() and port.read_text(), START_S, "the start of the endpoint")
        yield f"http://127.0.0.1:{port.read_text()}", psutil.Process(process.pid)
    finally:
        process.terminate()
        process.wait(START_S)


def hostile_requests(run: Run) -> Outcome:
    """Honest clients alone, then as long as the attack takes beside it."""
    with endpoint(run.folder) as (url, process):
        with plain_http.Client(base_url=url, timeout=TIMEOUT_S) as http:
            alone = {number: ask(http, asked)[0] for number, asked in enumerate(questions())}
        quiet, beside = Honest(url, alone), Honest(url, alone)
        with quiet.running():
            time.sleep(max(LEAST_S, run.count * PACE_S / 10))
        resident = process.memory_info().rss
        attack = Attack(url, run.count, run.seed)
        with beside.running():
            attack.run()
        wrong = [*quiet.wrong, *beside.wrong, *attack.wrong, *_check(process, url)]
        grown = process.memory_info().rss - resident if _is_alive(process) else 0
    if grown > MOST_GROWTH:
        wrong.append(f"memory grew by {grown >> 20} MiB")
    if missing := set(list(KINDS)[: run.count]) - attack.sent.keys():
        wrong.append(f"never sent: {', '.join(sorted(missing))}")
    before, after = (p99(each.first) for each in (quiet, beside))
    if after > MOST_SLOWER * before:
        wrong.append(f"p99 to the first token is {1000 * after:.0f} ms, {1000 * before:.0f} alone")
    figures = {
        "kinds": len(attack.sent),
        **dict(sorted(attack.answers.items())),
        "answers alone": len(quiet.first),
        "honest answers": len(beside.first),
        "wrong": len(quiet.wrong) + len(beside.wrong),
        "MiB grown": grown >> 20,
        "p99 ms alone": round(1000 * before),
        "p99 ms": round(1000 * after),
    }
    return Outcome(not wrong, figures, "\n".join(wrong[:REPORTED]))


def _check(process: psutil.Process, url: str) -> list[str]:
    """Whatever is wrong with the endpoint once the attack has ended."""
    if not _is_alive(process):
        return ["the endpoint ended"]
    try:
        until(lambda: _is_idle(url), END_S, "the end of all completions")
    except TimeoutError as error:
        return [str(error)]
    return []


def _is_alive(process: psutil.Process) -> bool:
    return process.is_running() and process.status() != psutil.STATUS_ZOMBIE


def _is_idle(url: str) -> bool:
    return 'state="running"} 0.0' in plain_http.get(f"{url}/metrics").text


ROWS = (
    Row(
        "language-model",
        f"hostile and random requests of {len(KINDS)} kinds to `relaxd llm`, one each {PACE_S:g} s "
        f"beside {CLIENTS} honest clients: every honest answer is what it is alone, p99 of the "
        "time to the first token is within twice that without them, no request is answered 500, "
        "those that have to be refused are, and memory grows by less than 1 GiB",
        1000,
        hostile_requests,
        "one small model on one thread; clients and endpoint share the machine.",
        minimums={"honest answers": 1, "answers alone": 0.1},
    ),
)

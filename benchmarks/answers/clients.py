"""An endpoint in a process of its own under many clients: whole answers, streams, conversations,
answers that are drawn and answers in a form, priorities, draft tokens, clients that leave, requests
that are refused, and more requests than may wait.

Every answer has to be the one that its prompt gets alone, without speculation; memory, files and
threads may not grow.
"""

import argparse
import asyncio
import json
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from relaxd.llm import Engine, Grammar, Sampling
from tests.relaxd.llm.models import LETTERS, build, tokenizer

_PROMPTS, _LONGEST_ANSWER = 48, 20
_BEGINNINGS = ("", "", "You are asked in a few words: ", "Here is a beginning that some share. ")
_WARM = 0.25
"""Part of the time after which memory may not grow."""
_SLACK = 16 << 20
_PATIENCE = 120.0
_FEW = 50
"""Clients that may leave without any of their answers having ended for it."""
_FORMS: tuple[tuple[dict[str, Any], Grammar], ...] = (
    (
        {"type": "grammar", "grammar": {"syntax": "regex", "definition": "[a-e]{2,6}[0-9]{2}"}},
        Grammar.regex("[a-e]{2,6}[0-9]{2}"),
    ),
    (
        {"type": "json_schema", "json_schema": {"name": "n", "schema": {"enum": ["ab", 12]}}},
        Grammar.schema({"enum": ["ab", 12]}),
    ),
)


@dataclass(frozen=True)
class Asked:
    """A request and the text that it has to get."""

    path: str
    document: dict[str, Any]
    want: str


@dataclass
class Seen:
    """Results as clients see them."""

    counts: Counter[str] = field(default_factory=Counter)
    answers: int = 0
    others: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    still_open: str = ""

    def judge(self, kind: str, asked: Asked, got: str) -> None:
        """Counts an answer, and keeps it where it is another than that of the prompt alone."""
        self.counts[kind] += 1
        self.answers += 1
        if got != asked.want:
            self.others.append(f"{kind} {asked.document}: {got!r}, alone {asked.want!r}")


def run(options: argparse.Namespace) -> int:
    """Print what clients saw; exit status 0 where nothing is wrong and nothing grew."""
    with tempfile.TemporaryDirectory(prefix="relaxd-clients-") as scratch:
        bundle, words = options.bundle, options.bundle
        if bundle is None:
            bundle, words = build(Path(scratch), "filled"), tokenizer(Path(scratch, "words"))
        asked = _asked(bundle, words, options.threads)
        with _endpoint(bundle, words, options, Path(scratch)) as (process, address):
            seen = asyncio.run(_all(address, asked, options, process.pid))
            shown = httpx.get(f"{address}/metrics").text
    _count_ends(seen, shown)
    for name, count in sorted(seen.counts.items()):
        print(f"{name}: {count}")
    print(*(line for line in shown.splitlines() if line.startswith(_SHOWN)), sep="\n")
    for line in (*seen.others[:10], *seen.wrong[:10]):
        print("wrong:", line)
    print(f"{seen.answers} answers, of which {len(seen.others)} are not those of prompts alone")
    print(f"{len(seen.wrong)} errors; {seen.still_open}")
    return int(bool(seen.wrong or seen.others))


_SHOWN = ("relaxd_llm_tokens_total", "relaxd_llm_requests", "relaxd_llm_interruptions_total")


def _count_ends(seen: Seen, metrics: str) -> None:
    """Compares how requests ended for the endpoint with what clients know."""

    def ended(finish: str) -> int:
        name = f'relaxd_llm_requests_total{{finish="{finish}"}} '
        return sum(
            int(float(line.removeprefix(name)))
            for line in metrics.splitlines()
            if line.startswith(name)
        )

    left = seen.counts["left a stream"] + seen.counts["left"]
    for holds, what in (
        (ended("stop") + ended("length") >= seen.answers, "answers were not counted"),
        (ended("run.overload") >= seen.counts["refused as too many"], "refusals were not counted"),
        (ended("cancelled") > 0 or left < _FEW, "no answer ended when its client left"),
    ):
        if not holds:
            seen.wrong.append(what)


def _asked(bundle: Path, words: Path, threads: int) -> list[Asked]:
    """Requests with the answers that each gets alone, and without anything of another's."""
    draw = random.Random(0)
    results = []
    with Engine.open(bundle, words, threads=threads, sequences=1, sharing=False) as engine:
        for index in range(_PROMPTS):
            text = draw.choice(_BEGINNINGS)
            # Some prompts repeat themselves, so that there is something to guess.
            own = "".join(draw.choices(LETTERS, k=draw.randint(1, 12)))
            text += own * draw.randint(1, 2)
            length = draw.randint(1, min(_LONGEST_ANSWER, engine.capacity - 48))
            sampling, document = _chosen(index, length)
            if index % 4:
                answer = engine.generate(text, sampling).text()
                results.append(Asked("/v1/completions", {"prompt": text, **document}, answer))
            else:
                talk: list[dict[str, object]] = [{"role": "user", "content": text[-8:]}]
                answer = engine.chat(talk, sampling).text()
                results.append(
                    Asked("/v1/chat/completions", {"messages": talk, **document}, answer)
                )
    return results


def _chosen(index: int, length: int) -> tuple[Sampling, dict[str, Any]]:
    """How the tokens of a request are chosen, and the same as a client asks for it: every third
    answer is drawn, every fifth has a form.
    """
    temperature = 0.7 if index % 3 == 0 else 0.0
    document = {"model": "m", "max_tokens": length, "temperature": temperature, "seed": index}
    grammar = None
    if index % 5 == 0:
        form, grammar = _FORMS[index % len(_FORMS)]
        document["response_format"] = form
    sampling = Sampling(temperature, seed=index, max_tokens=length, grammar=grammar)
    return sampling, document


@contextmanager
def _endpoint(
    bundle: Path, words: Path, options: argparse.Namespace, scratch: Path
) -> Iterator[tuple["subprocess.Popen[bytes]", str]]:
    """The endpoint's process and address."""
    port = scratch / "port"
    command = [sys.executable, "-m", "relaxd", "llm", str(bundle), "--tokenizer", str(words)]
    # Fewer may wait than there are clients, so that some are refused.
    waiting = max(options.clients // 2, 1)
    if options.speculate != "none":
        command += ["--speculate", options.speculate]
    command += ["--port", "0", "--port-file", str(port), "--threads", str(options.threads)]
    process = subprocess.Popen([*command, "--waiting", str(waiting)], stdout=subprocess.DEVNULL)
    try:
        end = time.monotonic() + _PATIENCE
        while not (port.is_file() and port.read_text()):
            if process.poll() is not None or time.monotonic() > end:
                raise SystemExit("the endpoint did not start")
            time.sleep(0.05)
        yield process, f"http://127.0.0.1:{port.read_text()}"
    finally:
        process.terminate()
        process.wait(_PATIENCE)


async def _all(address: str, asked: list[Asked], options: argparse.Namespace, server: int) -> Seen:
    """Runs the clients to the end, and looks at the server's process on the way."""
    seen, stop = Seen(), time.monotonic() + options.seconds
    tasks = [
        asyncio.create_task(_client(address, asked, random.Random(index), seen, stop))
        for index in range(options.clients)
    ]
    await asyncio.sleep(_WARM * options.seconds)
    stored = []
    while (left := stop - time.monotonic()) > 0:
        stored.append(_open_resources(server))
        print(f"{left:4.0f} s left: {stored[-1]}", flush=True)
        await asyncio.sleep(min(left, options.seconds / 10))
    await asyncio.gather(*tasks)
    async with httpx.AsyncClient() as client:
        end = time.monotonic() + _PATIENCE
        while not _idle((await client.get(f"{address}/metrics")).text):
            if time.monotonic() > end:
                seen.wrong.append("the endpoint is busy without clients")
                break
            await asyncio.sleep(0.1)
    after = _open_resources(server)
    print("at the end:", after, flush=True)
    # Requests under way take memory too, so that one look would tell little.
    most = {name: max(one[name] for one in stored[: len(stored) // 2 + 1]) for name in after}
    seen.still_open = ", ".join(f"{name} {most[name]} to {after[name]}" for name in after)
    for name, slack in (("bytes", _SLACK), ("threads", 2), ("files", 2)):
        if after[name] > most[name] + slack:
            seen.wrong.append(f"{name} grew from {most[name]} to {after[name]}")
    return seen


def _idle(metrics: str) -> bool:
    return all(
        f'requests_now{{state="{state}"}} 0.0' in metrics for state in ("running", "waiting")
    )


def _open_resources(process: int) -> dict[str, int]:
    """Memory, threads and open files of a process."""
    status = dict(
        line.split(":", 1) for line in Path(f"/proc/{process}/status").read_text().splitlines()
    )
    return {
        "bytes": int(status["VmRSS"].split()[0]) << 10,
        "threads": int(status["Threads"]),
        "files": len(list(Path(f"/proc/{process}/fd").iterdir())),
    }


async def _client(
    address: str, asked: list[Asked], draw: random.Random, seen: Seen, stop: float
) -> None:
    """Asks until the time is over."""
    async with httpx.AsyncClient(base_url=address, timeout=_PATIENCE) as client:
        while time.monotonic() < stop:
            try:
                act = draw.choices(_ACTS, _WEIGHTS)[0]
                await act(client, draw.choice(asked), draw, seen)
            except (httpx.HTTPError, KeyError, ValueError) as error:
                seen.wrong.append(f"{type(error).__name__}: {error}")


def _sent(asked: Asked, draw: random.Random) -> dict[str, Any]:
    """The request's document, with a priority."""
    return {**asked.document, "priority": draw.choice((-1, 0, 0, 0, 1))}


async def _read_answer(
    client: httpx.AsyncClient, asked: Asked, draw: random.Random, seen: Seen
) -> None:
    response = await client.post(asked.path, json=_sent(asked, draw))
    if await _overloaded(response, draw, seen):
        return
    choice = response.json()["choices"][0]
    seen.judge("whole", asked, choice.get("text", choice.get("message", {}).get("content")))


async def _stream(client: httpx.AsyncClient, asked: Asked, draw: random.Random, seen: Seen) -> None:
    """Reads a stream, one in three not to its end."""
    leaves, got = draw.random() < 1 / 3, ""
    document = {**_sent(asked, draw), "stream": True}
    async with client.stream("POST", asked.path, json=document) as response:
        if response.status_code != 200:
            await response.aread()
            await _overloaded(response, draw, seen)
            return
        async for line in response.aiter_lines():
            if line.startswith("data: {"):
                choice = json.loads(line[6:])["choices"][0]
                got += choice.get("text", choice.get("delta", {}).get("content")) or ""
            if leaves and got:
                seen.counts["left a stream"] += 1
                return
    seen.judge("stream", asked, got)


async def _hurried(
    client: httpx.AsyncClient, asked: Asked, draw: random.Random, seen: Seen
) -> None:
    """Leaves before the answer is there, wherever the request is by then."""
    try:
        async with asyncio.timeout(draw.random() * 0.05):
            await client.post(asked.path, json=_sent(asked, draw))
        seen.counts["answered in a hurry"] += 1
    except TimeoutError:
        seen.counts["left"] += 1


async def _too_long(
    client: httpx.AsyncClient, asked: Asked, draw: random.Random, seen: Seen
) -> None:
    """Sends what no cache holds."""
    document = {**asked.document, "prompt": "a" * 100_000}
    await _refused(client, document, "context_length_exceeded", "too long", draw, seen)


async def _formless(
    client: httpx.AsyncClient, asked: Asked, draw: random.Random, seen: Seen
) -> None:
    """Sends a schema that is none."""
    schema = {"name": "n", "schema": {"type": "objekt"}}
    document = {"prompt": "a", "response_format": {"type": "json_schema", "json_schema": schema}}
    await _refused(client, document, "run.grammar", "no schema", draw, seen)


async def _refused(
    client: httpx.AsyncClient,
    document: dict[str, Any],
    code: str,
    why: str,
    draw: random.Random,
    seen: Seen,
) -> None:
    response = await client.post("/v1/completions", json=document)
    if response.status_code == 429:
        await _overloaded(response, draw, seen)
        return
    if (response.status_code, response.json()["error"]["code"]) != (400, code):
        seen.wrong.append(f"{why}: {response.status_code} {response.text[:200]}")
    seen.counts[f"refused as {why}"] += 1


async def _overloaded(response: httpx.Response, draw: random.Random, seen: Seen) -> bool:
    """True if too many waited; the client then waits a little."""
    if response.status_code == 200:
        return False
    if (response.status_code, response.json()["error"]["type"]) != (429, "rate_limit_error"):
        raise ValueError(f"{response.status_code} {response.text[:200]}")
    if not 1 <= int(response.headers["retry-after"]) <= 60:
        raise ValueError(f"to be tried again after {response.headers['retry-after']}")
    seen.counts["refused as too many"] += 1
    await asyncio.sleep(draw.random() * 0.2)
    return True


_ACTS = (_read_answer, _stream, _hurried, _too_long, _formless)
_WEIGHTS = (60, 25, 10, 3, 2)

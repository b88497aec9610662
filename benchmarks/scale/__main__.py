"""Submits, cache hits and the drain of the backlog, measured on PostgreSQL, Redis and S3.

The load, the servers and the service share this machine: `alone` is each request by itself, and
what `open_loop` adds to it is queueing, for processors above all.
"""

import argparse
import asyncio
import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import httpx

from benchmarks.scale.client import Client, Message
from benchmarks.scale.fleet import Fleet, fleet
from benchmarks.scale.load import one_by_one, open_loop
from relaxd.contract.canonical import digest_of

MODEL = b"a model"
WARM_UP, ALONE = 50, 300
DRAIN_S = 3600


def body(key: int) -> dict[str, Any]:
    """A request whose action key is that of no other `key`."""
    return {
        "model": digest_of(MODEL),
        "dims": {"batch": f"1:{key + 1}", "seq": "1:512%8"},
        "targets": ["x86-64-v3"],
    }


async def submit(messages: list[Message], client: Client, number: int) -> None:
    """A new job, of one of as many equal ones as there are messages."""
    (await client.ask(messages[number % len(messages)])).json()


async def hit(messages: list[Message], client: Client, number: int) -> None:
    """A new job whose result is in the cache, to its end."""
    message = messages[number % len(messages)]
    job = (await client.ask(message)).json()
    while job["state"] in ("queued", "running"):
        url = f"{message.url}/{job['id']}?wait=30"
        job = (await client.ask(Message("GET", url))).json()
    assert job["builds"][0]["cached"], job


def submissions(urls: list[str], keys: int) -> list[Message]:
    """A request for each key at each of the API processes."""
    return [
        Message("POST", f"{urls[number % len(urls)]}/v1/jobs", body(number // len(urls)))
        for number in range(keys * len(urls))
    ]


def push(url: str) -> None:
    """Put the model into the store, as clients do."""
    path = f"{url}/v2/relaxd/models/blobs/uploads/"
    httpx.post(path, params={"digest": digest_of(MODEL)}, content=MODEL).raise_for_status()


def drain(running: Fleet) -> float:
    """Seconds until no build waits or runs."""
    began = time.monotonic()
    while running.count("state IN ('queued', 'running')"):
        assert time.monotonic() - began < DRAIN_S, "the backlog does not drain"
        time.sleep(0.2)
    return round(time.monotonic() - began, 1)


@contextmanager
def _processor(running: Fleet, figures: dict[str, Any], name: str, count: int) -> Iterator[None]:
    """Note the processor milliseconds of each kind of process, for each of `count` requests."""
    before = running.processor_seconds()
    yield
    figures[f"{name}_processor_ms"] = {
        kind: round((used - before.get(kind, 0.0)) * 1000 / count, 2)
        for kind, used in running.processor_seconds().items()
    }


class _Figures(dict[str, Any]):
    """Figures by name, each shown on standard error as it comes: a run may be ended early."""

    def __setitem__(self, name: str, value: Any) -> None:
        super().__setitem__(name, value)
        print(f"{name}: {json.dumps(value)}", file=sys.stderr, flush=True)


def measure(running: Fleet, options: argparse.Namespace) -> dict[str, Any]:
    """Every figure, by name."""
    push(running.urls[0])
    messages = submissions(running.urls, options.keys)
    request = partial(submit, messages)
    asyncio.run(one_by_one(request, WARM_UP))
    figures = _Figures()
    with _processor(running, figures, "submit", ALONE):
        figures["submit_alone"] = asyncio.run(one_by_one(request, ALONE)).to_json()
    if not options.idle:
        running.start_workers(options.workers)
        time.sleep(5)
        drain(running)
    began, load = time.monotonic(), os.times()
    figures["submit_open_loop"] = asyncio.run(
        open_loop(request, options.jobs, options.rate)
    ).to_json()
    figures["submit_seconds"] = round(time.monotonic() - began, 1)
    figures["load_processor_seconds"] = round(sum(os.times()[:2]) - sum(load[:2]), 1)
    figures["backlog"] = running.count("state IN ('queued', 'running')")
    if not options.idle:
        figures["drain_seconds"] = drain(running)
        wanted = partial(hit, messages)
        with _processor(running, figures, "hit", ALONE):
            figures["hit_alone"] = asyncio.run(one_by_one(wanted, ALONE)).to_json()
        figures["hit_open_loop"] = asyncio.run(
            open_loop(wanted, options.hits, options.hit_rate)
        ).to_json()
    figures["compiles"] = running.count("state = 'succeeded' AND NOT cached")
    figures["failed"] = running.count("state NOT IN ('succeeded', 'queued', 'running')")
    return figures


def main() -> None:
    """Print the figures as one JSON document."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scale", description=__doc__)
    parser.add_argument("--jobs", type=int, default=10_000)
    parser.add_argument("--rate", type=float, default=200, help="submits a second")
    parser.add_argument("--keys", type=int, default=100, help="different action keys")
    parser.add_argument("--hits", type=int, default=1000)
    parser.add_argument("--hit-rate", type=float, default=20, help="cache hits a second")
    parser.add_argument("--apis", type=int, default=2)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--store", choices=["s3", "local"], default="s3")
    parser.add_argument("--idle", action="store_true", help="start no workers: submits alone")
    parser.add_argument("--keep", type=Path, help="folder for logs, in place of a temporary one")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="relaxd-scale-") as name:
        folder = options.keep or Path(name)
        folder.mkdir(parents=True, exist_ok=True)
        before = os.getloadavg()
        with fleet(folder, options.apis, options.store) as running:
            figures = measure(running, options)
    settings = {key: str(value) for key, value in vars(options).items()}
    figures |= {"options": settings, "loadavg": {"before": before, "after": os.getloadavg()}}
    print(json.dumps(figures, indent=2))


if __name__ == "__main__":
    main()

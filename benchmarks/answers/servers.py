"""The time to the first token and the time of each further one, as clients of an endpoint see them:
`relaxd llm` and llama.cpp's server, of one GGUF file, in turns.

Each client sends a prompt of tokens drawn at random, of one of `LENGTHS`, reads the stream to its
end, and sends the next. An answer has `TOKENS` tokens: none may be the one that ends texts.
"""

import argparse
import asyncio
import random
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from statistics import median
from typing import Any

import httpx
import numpy as np

from compiler.ir.gguf.file import read_gguf
from tests.support.servers import free_port

LENGTHS = (16, 64, 128, 256, 512)
TOKENS = 32
_ROOM = max(LENGTHS) + TOKENS
_LEAST = 300
"""Tokens before it are often no words."""
_PATIENCE = 120.0


@dataclass
class Times:
    """Milliseconds: of each request until its first token, and for each of its further tokens."""

    first: list[float] = field(default_factory=list)
    further: list[float] = field(default_factory=list)


def run(options: argparse.Namespace) -> int:
    """Print a row for each number of clients; exit status 0."""
    metadata = read_gguf(options.model).metadata
    words = len(metadata["tokenizer.ggml.tokens"])
    bias = {str(metadata["tokenizer.ggml.eos_token_id"]): -100}
    print("| clients | | relaxd, ms | llama.cpp, ms | ratio |\n|---:|---|---:|---:|---:|")
    for clients in options.clients:
        rounds = [
            [
                _measure(command, words, bias, clients, options.seconds, seed)
                for command in _commands(options)
            ]
            for seed in range(options.rounds)
        ]
        _print(clients, rounds)
    return 0


def _commands(options: argparse.Namespace) -> Iterator[list[str]]:
    most, threads = max(options.clients), str(options.threads)
    ours = [sys.executable, "-m", "relaxd", "llm", str(options.bundle), "--threads", threads]
    yield [*ours, "--capacity", str(_ROOM), "--sequences", str(most), "--waiting", str(most)]
    theirs = [str(options.server), "-m", str(options.model), "-t", threads, "-tb", threads]
    yield [*theirs, "-np", str(most), "-c", str(most * _ROOM)]


def _measure(
    command: list[str], words: int, bias: dict[str, int], clients: int, seconds: float, seed: int
) -> Times:
    with _serving(command) as address:
        return asyncio.run(_all(address, words, bias, clients, seconds, seed))


@contextmanager
def _serving(command: Sequence[str]) -> Iterator[str]:
    """The address of a server that answers."""
    port = free_port()
    with subprocess.Popen(
        [*command, "--port", str(port)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as process:
        try:
            address, end = f"http://127.0.0.1:{port}", time.monotonic() + _PATIENCE
            while not _answers(address):
                if process.poll() is not None or time.monotonic() > end:
                    raise SystemExit(f"{command[0]} did not start")
                time.sleep(0.1)
            yield address
        finally:
            process.terminate()


def _answers(address: str) -> bool:
    try:
        return httpx.get(f"{address}/health").status_code == httpx.codes.OK
    except httpx.TransportError:
        return False


async def _all(
    address: str, words: int, bias: dict[str, int], clients: int, seconds: float, seed: int
) -> Times:
    """The times of requests that were sent within the seconds; all are read to their end."""
    times, end = Times(), time.monotonic() + seconds
    # Servers close connections that were used often enough, some while a request is on its way.
    limits = httpx.Limits(max_connections=clients, max_keepalive_connections=0)
    async with httpx.AsyncClient(base_url=address, timeout=_PATIENCE, limits=limits) as client:

        async def work(index: int) -> None:
            draw = random.Random(f"{seed} {index}")
            while time.monotonic() < end:
                prompt = [draw.randrange(_LEAST, words) for _ in range(draw.choice(LENGTHS))]
                await _ask(client, prompt, bias, times)

        await asyncio.gather(*map(work, range(clients)))
    return times


async def _ask(
    client: httpx.AsyncClient, prompt: list[int], bias: dict[str, int], times: Times
) -> None:
    document: dict[str, Any] = {
        "model": "m",
        "prompt": prompt,
        "max_tokens": TOKENS,
        "stream": True,
    }
    sent, moments = time.perf_counter(), []
    async with client.stream(
        "POST", "/v1/completions", json={**document, "temperature": 0, "logit_bias": bias}
    ) as response:
        if response.status_code != httpx.codes.OK:
            raise SystemExit(f"{response.status_code}: {(await response.aread()).decode()}")
        async for line in response.aiter_lines():
            if line.startswith("data: {"):
                moments.append(time.perf_counter())
    times.first.append(1e3 * (moments[0] - sent))
    times.further.append(1e3 * (moments[-1] - moments[0]) / (TOKENS - 1))


def _print(clients: int, rounds: list[list[Times]]) -> None:
    for part, name in (("first", "first token"), ("further", "each further token")):
        for share in (50, 99):
            ours, theirs = (
                [float(np.percentile(getattr(times, part), share)) for times in engine]
                for engine in zip(*rounds, strict=True)
            )
            ratio = median(one / other for one, other in zip(ours, theirs, strict=True))
            print(
                f"| {clients} | {name}, p{share} | {median(ours):.0f} | {median(theirs):.0f} | "
                f"{ratio:.2f} |",
                flush=True,
            )

"""The protocol of a process that holds a model, one line for each request; see
`benchmarks.llm.engines`.
"""

import sys
import time
from pathlib import Path
from typing import Protocol

import numpy as np

Numbers = np.ndarray[tuple[int], np.dtype[np.int64]]
PIECE = 512
"""Tokens of a prompt in one call at most."""


class Runner(Protocol):
    """A model that is loaded; what else it answers has its request's name."""

    def prefill(self, tokens: int) -> str:
        """Time of a prompt."""

    def decode(self, past: int, entries: int, steps: int) -> str:
        """Time of a step of so many sequences behind `past` tokens each."""


def serve(runner: Runner) -> int:
    """Answer until the input ends."""
    print("ready", flush=True)
    for request in sys.stdin:
        name, *numbers = request.split()
        answer = peak if name == "peak" else getattr(runner, name)
        print(answer(*map(int, numbers)), flush=True)
    return 0


def tokens_at(first: int, count: int) -> Numbers:
    """Number the tokens of every text."""
    return 10 + np.arange(first, first + count) * 37 % 1000


def times() -> tuple[float, float]:
    """By the clock, and of the processor."""
    return time.monotonic(), time.process_time()


def format_times(started: tuple[float, float], steps: int) -> str:
    """Seconds of each step, by both."""
    wall, cpu = ((now - then) / steps for now, then in zip(times(), started, strict=True))
    return f"{wall:.9f} {cpu:.9f}"


def peak() -> str:
    """The most memory that this process had, in KiB."""
    status = Path("/proc/self/status").read_text()
    return next(line.split()[1] for line in status.splitlines() if line.startswith("VmHWM"))


def list_values(values: "np.ndarray[tuple[int], np.dtype[np.float32]]") -> str:
    """Logits as the answer to `logits`."""
    return " ".join(f"{value:.9g}" for value in values)

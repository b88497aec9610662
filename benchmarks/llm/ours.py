"""`python -m benchmarks.llm.ours BUNDLE THREADS CAPACITY`: answers a line on its input with a line
on its output, by relaxd; see `benchmarks.llm.engines`.
"""

import sys
import time
from pathlib import Path

import numpy as np


class Runner:
    """A loaded bundle, and a state for as many sequences as were last asked for."""

    def __init__(self, bundle: Path, threads: int, capacity: int) -> None:
        # tvm_ffi loads torch where it is installed, and its memory would be counted.
        sys.modules["torch"] = None  # type: ignore[assignment]
        from relaxd.loader.model import load

        self.model = load(bundle, threads=threads)
        self.capacity = capacity
        self.state = self.model.state(entries=1, capacity=capacity)
        self.last = np.zeros(0, np.float32)

    def answer(self, request: str) -> str:
        """The answer to a line."""
        name, *numbers = request.split()
        if name == "prefill":
            return self.prefill(*map(int, numbers))
        if name == "decode":
            return self.decode(*map(int, numbers))
        if name == "logits":
            self.begin(1)
            self.prompt(0, int(numbers[0]))
            return " ".join(f"{value:.9g}" for value in self.last[:256])
        assert name == "peak", request
        return peak()

    def begin(self, entries: int) -> None:
        """Empty sequences."""
        if len(self.state.lengths) != entries:
            self.state = self.model.state(entries=entries, capacity=self.capacity)
        self.state.reset()

    def prompt(self, entry: int, tokens: int) -> None:
        """A sequence's first tokens, in pieces of 512."""
        text = tokens_at(0, tokens)
        for first in range(0, tokens, 512):
            outputs = self.state.step(text[None, first : first + 512], first=entry)
            self.last = outputs["logits"][0, -1].copy()

    def prefill(self, tokens: int) -> str:
        """Time of a prompt."""
        self.begin(1)
        started = times()
        self.prompt(0, tokens)
        return taken(started, 1)

    def decode(self, past: int, entries: int, steps: int) -> str:
        """Time of a step behind `past` tokens."""
        state = self.state
        if state.lengths != (past,) * entries:
            self.begin(entries)
            state = self.state
            for entry in range(entries):
                self.prompt(entry, past)
        text = tokens_at(past, steps)
        started = times()
        for token in text:
            state.step(np.full((entries, 1), token))
        answer = taken(started, steps)
        for entry in range(entries):
            state.truncate(entry, past)
        return answer


def peak() -> str:
    """The most memory that this process had, in KiB."""
    status = Path("/proc/self/status").read_text()
    return next(line.split()[1] for line in status.splitlines() if line.startswith("VmHWM"))


def tokens_at(first: int, count: int) -> "np.ndarray[tuple[int], np.dtype[np.int64]]":
    """Of every text."""
    return 10 + np.arange(first, first + count) * 37 % 1000


def times() -> tuple[float, float]:
    """By the clock, and of the processor."""
    return time.monotonic(), time.process_time()


def taken(started: tuple[float, float], steps: int) -> str:
    """Seconds of each step, by both."""
    wall, cpu = ((now - then) / steps for now, then in zip(times(), started, strict=True))
    return f"{wall:.9f} {cpu:.9f}"


def main() -> int:
    """Answer until the input ends."""
    bundle, threads, capacity = sys.argv[1:]
    runner = Runner(Path(bundle), int(threads), int(capacity))
    print("ready", flush=True)
    for request in sys.stdin:
        print(runner.answer(request), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""`python -m benchmarks.llm.ours BUNDLE THREADS CAPACITY`: answers a line on its input with a line
on its output, by relaxd; see `benchmarks.llm.engines`.
"""

import sys
from pathlib import Path

import numpy as np

from benchmarks.llm.requests import PIECE, format_times, list_values, serve, times, tokens_at


class Runner:
    """A loaded bundle, and a state for as many sequences as were last asked for."""

    def __init__(self, bundle: Path, threads: int, capacity: int) -> None:
        # tvm_ffi loads torch where it is installed, and its memory would be counted.
        sys.modules["torch"] = None
        from relaxd.loader.opening import load

        self.model = load(bundle, threads=threads)
        self.capacity = capacity
        self.state = self.model.state(entries=1, capacity=capacity)
        self.last = np.zeros(0, np.float32)

    def begin(self, entries: int) -> None:
        """Empty sequences."""
        if len(self.state.lengths) != entries:
            self.state = self.model.state(entries=entries, capacity=self.capacity)
        self.state.reset()

    def prompt(self, entry: int, tokens: int) -> None:
        """A sequence's first tokens, in pieces."""
        text = tokens_at(0, tokens)
        for first in range(0, tokens, PIECE):
            outputs = self.state.step(text[None, first : first + PIECE], first=entry)
            self.last = outputs["logits"][0, -1].copy()

    def prefill(self, tokens: int) -> str:
        """Time of a prompt."""
        self.begin(1)
        started = times()
        self.prompt(0, tokens)
        return format_times(started, 1)

    def logits(self, tokens: int) -> str:
        """The first logits behind a prompt."""
        self.begin(1)
        self.prompt(0, tokens)
        return list_values(self.last[:256])

    def probability(self, tokens: int, token: int) -> str:
        """The logarithm of a token's probability behind a prompt."""
        self.begin(1)
        self.prompt(0, tokens)
        apart = self.last.astype(np.float64) - self.last.max()
        return f"{apart[token] - np.log(np.exp(apart).sum()):.9g}"

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
        answer = format_times(started, steps)
        for entry in range(entries):
            state.truncate(entry, past)
        return answer


def main() -> int:
    """Answer until the input ends."""
    bundle, threads, capacity = sys.argv[1:]
    return serve(Runner(Path(bundle), int(threads), int(capacity)))


if __name__ == "__main__":
    sys.exit(main())

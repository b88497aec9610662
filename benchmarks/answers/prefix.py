"""The time to the first token of a prompt whose beginning another one shares, beside that of a
prompt that shares nothing, by the time of the processor: neighbours do not count.
"""

import argparse
import time
from statistics import median

import numpy as np

from relaxd.llm import Engine, Sampling

_WORDS = 10_000
LIMIT = 0.05
"""Of the time without a shared beginning, at most."""


def run(options: argparse.Namespace) -> int:
    """Print both times by how many tokens are the prompt's own; exit status 0 where the shared
    beginning leaves at most `LIMIT` of the time.
    """
    draw = np.random.default_rng(0)

    def tokens(count: int) -> list[int]:
        return [int(token) for token in draw.integers(0, _WORDS, count)]

    worst = 0.0
    # Two slots: the memory of both is taken before anything is timed.
    with Engine.open(options.bundle, threads=options.threads, sequences=2) as engine:
        for _ in range(2):
            _timed(engine, tokens(options.shared + max(options.own)), 0)
        print("| shared | own | cold ms | shared ms | of cold |\n|---:|---:|---:|---:|---:|")
        for own in options.own:
            cold, warm = [], []
            for _ in range(options.turns):
                shared = tokens(options.shared)
                cold.append(_timed(engine, shared + tokens(own), 0))
                warm.append(_timed(engine, shared + tokens(own), options.shared))
            first, again = median(cold) * 1e3, median(warm) * 1e3
            worst = max(worst, again / first)
            print(
                f"| {options.shared} | {own} | {first:.1f} | {again:.1f} | {again / first:.1%} |",
                flush=True,
            )
    return int(worst > LIMIT)


def _timed(engine: Engine, prompt: list[int], shared: int) -> float:
    """Seconds to the first token; ends the program where another part of the prompt was shared."""
    before = time.process_time()
    created = engine.generate(prompt, Sampling(max_tokens=1))
    created.text()
    took, used = time.process_time() - before, created.reused or 0
    # The first of the random tokens may be alike too, and the last one is always computed.
    if not shared - 1 <= used <= shared + 2:
        raise SystemExit(f"{used} tokens were shared, not {shared}")
    return took

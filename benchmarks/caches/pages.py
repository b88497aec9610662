"""`python -m benchmarks.caches.pages times|sessions BUNDLE`: KV caches in pages beside arrays.

times: steps and prompts, in turns on one thread, by the time of the thread. sessions: the memory of
conversations with a common beginning, which an engine keeps.
"""

import argparse
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

import numpy as np

import relaxd
from benchmarks.turns import pin_to_one_core, thread_seconds
from relaxd.llm import CacheMemory, Engine, Sampling
from relaxd.loader.page_pool import PagePool
from relaxd.loader.paged_state import PagedState, layout_of
from relaxd.loader.state import State

_PIECE = 128
_MIB = 1 << 20
_CASES = ((1, 128), (1, 1024), (1, 2000), (8, 128), (8, 1024))
_PROMPTS = (128, 512)


def main() -> int:
    """Print a table."""
    options = _parser().parse_args()
    run: Callable[[argparse.Namespace], None] = options.run
    run(options)
    return 0


def _compare_times(options: argparse.Namespace) -> None:
    pin_to_one_core()
    model = relaxd.load(options.bundle, threads=1)
    layout = layout_of(model, options.capacity)
    entries = max(count for count, _ in _CASES)
    pool = PagePool(layout, entries * layout.blocks + 2)
    states = {
        "arrays": model.state(entries=entries, capacity=options.capacity),
        "pages": PagedState(model, entries, options.capacity, None, pool),
        "shared": PagedState(model, entries, options.capacity, None, pool),
    }
    print("| request | arrays, ms | pages | of it | shared pages | of it |")
    print("|---|---:|---:|---:|---:|---:|", flush=True)
    for count, context in _CASES:
        for name, state in states.items():
            _fill(state, count, context, shared=name == "shared")
        request = f"{count} sequences after {context}" if count > 1 else f"decode after {context}"
        _print(request, _take_turns(states, _decode, count, options.turns))
    for state in states.values():
        state.reset()
    for tokens in _PROMPTS:
        _print(f"prompt of {tokens}", _take_turns(states, _prefill, tokens, options.turns))


def _fill(state: State, count: int, context: int, *, shared: bool) -> None:
    """Fill the first entries; shared: with the first one's pages."""
    state.reset()
    for entry in range(count):
        if shared and entry:
            state.copy(0, entry)
            continue
        draw = np.random.default_rng(entry)
        for first in range(0, context, _PIECE):
            new = draw.integers(0, 1000, (1, min(_PIECE, context - first)))
            state.step(new, first=entry)


def _take_turns(
    states: dict[str, State], measure: Callable[[State, int], float], size: int, turns: int
) -> list[list[float]]:
    """Seconds by turn and state; another state begins each turn."""
    names, rounds = list(states), []
    for turn in range(turns):
        first = turn % len(names)
        order = [*names[first:], *names[:first]]
        seconds = {name: measure(states[name], size) for name in order}
        rounds.append([seconds[name] for name in names])
    return rounds


def _decode(state: State, count: int) -> float:
    """Seconds of a step of the first entries, which is forgotten."""
    length = state.lengths[0]
    seconds = thread_seconds(state.step, np.full((count, 1), length % 1000))
    for entry in range(count):
        state.truncate(entry, length)
    return seconds


def _prefill(state: State, tokens: int) -> float:
    """Seconds of a prompt in an empty entry, with the memory that it takes."""
    state.truncate(0, 0)
    text = np.random.default_rng(0).integers(0, 1000, (1, tokens))
    return sum(
        thread_seconds(state.step, text[:, first : first + _PIECE])
        for first in range(0, tokens, _PIECE)
    )


def _print(request: str, rounds: list[list[float]]) -> None:
    arrays, pages, shared = (median(times) * 1e3 for times in zip(*rounds, strict=True))
    ratios = [median(times[i] / times[0] for times in rounds) for i in (1, 2)]
    print(
        f"| {request} | {arrays:.2f} | {pages:.2f} | {ratios[0]:.3f} | {shared:.2f} | "
        f"{ratios[1]:.3f} |",
        flush=True,
    )


def _count_sessions(options: argparse.Namespace) -> None:
    model = relaxd.load(options.bundle, threads=options.threads)
    draw = np.random.default_rng(1)
    beginning = draw.integers(0, 1000, options.shared).tolist()
    rest = options.tokens - options.shared
    answer = Sampling(max_tokens=1)
    before = _own_memory()
    cache = CacheMemory(limit=options.limit, disk=options.disk)
    started = time.perf_counter()
    with Engine(model, capacity=options.capacity, sequences=8, cache=cache) as engine:
        for _ in range(options.count):
            prompt = [*beginning, *draw.integers(0, 1000, rest).tolist()]
            engine.generate(prompt, answer).text()
        pages = engine.cache_pages
        assert pages is not None
        taken = _own_memory() - before + pages.memory_bytes
        dense = pages.block_bytes / pages.block * options.tokens * options.count
        print(
            f"{options.count} sessions of {options.tokens} tokens, the first {options.shared} equal"
        )
        print(f"cached sessions: {pages.stored}, evicted {pages.evicted}")
        print(
            f"blocks: {pages.used} of {pages.block} tokens, {pages.block_bytes / _MIB:.2f} MiB each"
        )
        print(f"in arrays: {dense / _MIB:.0f} MiB")
        print(
            f"memory of the process and its pages: {taken / _MIB:.0f} MiB, "
            f"{taken / dense:.3f} of it"
        )
        print(f"{time.perf_counter() - started:.0f} s")


def _own_memory() -> int:
    """The memory that this process has of its own, without pages: these need not be mapped."""
    lines = Path("/proc/self/smaps_rollup").read_text().splitlines()[1:]
    fields = dict(line.split(":") for line in lines)
    return int(fields["Pss_Anon"].split()[0]) * 1024


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.caches.pages", description=__doc__)
    parts = parser.add_subparsers(required=True)
    part = parts.add_parser("times", help="steps and prompts, in turns")
    part.add_argument("bundle", type=Path)
    part.add_argument("--capacity", type=int, default=2048)
    part.add_argument("--turns", type=int, default=31)
    part.set_defaults(run=_compare_times)
    part = parts.add_parser("sessions", help="the memory of many conversations")
    part.add_argument("bundle", type=Path)
    part.add_argument("--count", type=int, default=200)
    part.add_argument("--tokens", type=int, default=2000)
    part.add_argument("--shared", type=int, default=1500, help="tokens that all begin with")
    part.add_argument("--capacity", type=int, default=2048)
    part.add_argument("--threads", type=int, default=2)
    part.add_argument("--limit", type=int, default=16 << 30, help="bytes of the KV cache")
    part.add_argument("--disk", type=Path, help="a folder to offload to")
    part.set_defaults(run=_count_sessions)
    return parser


if __name__ == "__main__":
    sys.exit(main())

"""`python -m benchmarks.llm.adapters BUNDLE`: the time of a decoding step whose sequences have an
adapter each, beside one whose sequences have none, in turns on one core by the time of its thread.

With `--against`, beside another bundle too: the same model compiled without `lora_rank`. Adapters
are random, of the ranks that `--rank` gives.
"""

import argparse
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import numpy as np

import relaxd
from benchmarks.turns import pin_to_one_core, thread_seconds
from relaxd.loader.adapters import AdapterStacks
from relaxd.loader.model import Model
from relaxd.loader.state import State


@dataclass(frozen=True)
class Case:
    """Sequences that are ready for a step."""

    name: str
    state: State
    entries: int

    def step(self) -> float:
        """Seconds of a step, which leaves the state as it was."""
        lengths = self.state.lengths
        took = thread_seconds(self.state.step, [[1]] * self.entries)
        for entry, length in enumerate(lengths):
            self.state.truncate(entry, length)
        return took


def fill_stacks(model: Model, count: int, rank: int) -> AdapterStacks:
    """Random adapters in all slots."""
    stacks, random = model.adapters(count), np.random.default_rng(0)
    for number in range(1, count + 1):
        changes = {}
        for key, module in stacks.modules.items():
            depth, width = stacks.inputs[module.down].shape[2], stacks.inputs[module.up].shape[2]
            down = random.standard_normal((depth, rank), np.float32) / np.float32(depth**0.5)
            up = random.standard_normal((rank, width), np.float32) * np.float32(0.01)
            changes[key] = down, up
        stacks.write(number, changes)
    return stacks


def prepare(
    name: str, model: Model, entries: int, past: int, stacks: AdapterStacks | None, adapters: int
) -> Case:
    """Sequences of so many tokens with adapters in turn, of no adapter where there are 0."""
    state = model.state(entries=entries, adapters=stacks)
    for entry in range(entries if adapters else 0):
        state.adapt(entry, 1 + entry % adapters)
    tokens = np.random.default_rng(1).integers(0, 1000, (entries, past))
    for first in range(0, past, 32):
        state.step(tokens[:, first : first + 32])
    return Case(name, state, entries)


def main() -> None:
    """Print the ratio of each case to the first, the median of all rounds."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("bundle", type=Path)
    parser.add_argument("--against", type=Path)
    parser.add_argument("--entries", type=int, default=16)
    parser.add_argument("--adapters", type=int, default=16)
    parser.add_argument("--rank", type=int, default=16)
    parser.add_argument("--past", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=15)
    options = parser.parse_args()
    pin_to_one_core()
    entries, past = options.entries, options.past
    model = relaxd.load(options.bundle, threads=1)
    stacks = fill_stacks(model, options.adapters, options.rank)
    cases = [prepare("none of its adapters", model, entries, past, stacks, 0)]
    cases.append(prepare("one adapter for all", model, entries, past, stacks, 1))
    mixed = f"{options.adapters} adapters"
    cases.append(prepare(mixed, model, entries, past, stacks, options.adapters))
    if options.against is not None:
        other = relaxd.load(options.against, threads=1)
        cases.insert(0, prepare("compiled without adapters", other, entries, past, None, 0))
    times = [[case.step() for case in cases] for _ in range(options.rounds + 1)][1:]
    for number, case in enumerate(cases):
        ratio = median(each[number] / each[0] for each in times)
        took = median(each[number] for each in times)
        print(f"{case.name:28} {1e3 * took:8.2f} ms   {ratio:.3f}")


if __name__ == "__main__":
    main()

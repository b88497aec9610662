"""`python -m benchmarks.caches MODEL`: a token of a decoder behind contexts of several lengths, its
in-place KV caches of each type, in turns on one thread, by the time of the thread; and the memory
that rows take.

MODEL: a GGUF file, a folder of Hugging Face's or an ONNX model whose dims have their names.
"""

import argparse
import sys
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

import numpy as np

import relaxd
from benchmarks.turns import pin_to_one_core, thread_seconds
from compiler import compile_model
from relaxd.contract.options import CacheForm
from relaxd.loader.state import State

_PIECE = 128
_SPARE = 8
"""Rows behind the longest context."""


def main() -> int:
    """Print a row for each context."""
    options = _parser().parse_args()
    pin_to_one_core()
    with TemporaryDirectory(prefix="relaxd-caches-") as folder:
        retained = options.built or Path(folder)
        states = {form: _state(options, form, retained) for form in CacheForm}
        others = [form for form in CacheForm if form is not CacheForm.FLOAT32]
        names = [f"{form} ms" for form in CacheForm] + [f"{form} of it" for form in others]
        memory = [f"{form} MiB" for form in CacheForm]
        print(f"| context | {' | '.join([*names, *memory])} |")
        print("|---:" * (1 + len(names) + len(memory)) + "|")
        for context in sorted(options.context):
            for state in states.values():
                _fill(state, context)
            rounds = [
                {form: _timed(state) for form, state in states.items()}
                for _ in range(options.turns)
            ]
            times = [f"{median(one[form] for one in rounds) * 1e3:.2f}" for form in CacheForm]
            ratios = [
                f"{median(one[form] / one[CacheForm.FLOAT32] for one in rounds):.2f}"
                for form in others
            ]
            sizes = [
                f"{state.nbytes / state.capacity * context / 2**20:.1f}"
                for state in states.values()
            ]
            print(f"| {context} | {' | '.join([*times, *ratios, *sizes])} |", flush=True)
    return 0


def _state(options: argparse.Namespace, form: CacheForm, folder: Path) -> State:
    """Open the state of a bundle, which is built unless the folder has it."""
    bundle, longest = folder / form.value, max(options.context) + _SPARE
    if not bundle.exists():
        settings = dict(option.split("=", 1) for option in options.option)
        in_place = {"verify": False, "profile": False, "state": "lifted", "logits": "last"}
        compile_model(
            options.model,
            output=bundle,
            dims={
                "batch_size": (1, 8),
                "sequence_length": (1, _PIECE),
                "past_sequence_length": (0, longest),
                "total_sequence_length": (1, longest),
            },
            options={**in_place, **settings, "cache": form.value},
        )
    return relaxd.load(bundle, threads=1).state(capacity=longest)


def _fill(state: State, context: int) -> None:
    """Adds tokens up to so many."""
    draw = np.random.default_rng(state.lengths[0])
    while (missing := context - state.lengths[0]) > 0:
        state.step(draw.integers(0, 1000, (1, min(missing, _PIECE))))


def _timed(state: State) -> float:
    """Seconds of a token, which is forgotten."""
    length = state.lengths[0]
    taken = thread_seconds(state.step, [[length % 1000]])
    state.truncate(0, length)
    return taken


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.caches", description=__doc__)
    parser.add_argument("model", type=Path)
    parser.add_argument("--context", type=int, nargs="+", default=[128, 1024, 4096])
    parser.add_argument("--turns", type=int, default=31)
    parser.add_argument("--option", action="append", default=[], help="such as precision=int8")
    parser.add_argument("--built", type=Path, help="a folder that keeps the bundles")
    return parser


if __name__ == "__main__":
    sys.exit(main())

"""`python -m benchmarks.decoder MODEL`: a step of a decoder as onnxruntime-genai's builder exports
it, at several lengths of its past, relaxd and ONNX Runtime in turns on one thread, by the time of
their thread.

A step takes one token for each entry of the batch. With caches passed it gives all of them anew;
with `lifted` the library writes the new rows where the caches lie.
"""

import argparse
import sys
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import onnx

from benchmarks import turns
from benchmarks.engines import Subject, relaxd
from compiler import compile_model
from relaxd.loader.opening import load
from relaxd.timing.engines import Arrays, load_onnxruntime

_DIMS = {
    "batch_size": "1:16",
    "sequence_length": "1:1024",
    "past_sequence_length": "0:8192",
    "total_sequence_length": "1:8192",
}


def main() -> int:
    """Print a row for each batch and context."""
    options = _parser().parse_args()
    turns.pin_to_one_core()
    graph = onnx.load(options.model, load_external_data=False).graph
    inputs = {entry.name: entry for entry in graph.input}
    head = next(2 * table.dims[1] for table in graph.initializer if table.name == "cos_cache")
    with TemporaryDirectory(prefix="relaxd-decoder-") as folder:
        built = options.built or Path(folder)
        subject = Subject(options.model, tuple(inputs), threads=1, dims=_DIMS, built=built)
        ours, theirs = relaxd(subject), load_onnxruntime(subject)
        in_place = CallerOwned(options.model, built / "lifted", options.tokens)
        print(
            "| batch | tokens | context | passed ms | owned ms | onnxruntime ms | times as fast |"
        )
        print("|---:|---:|---:|---:|---:|---:|---:|")
        for batch in options.batch:
            for context in options.context:
                feed = _feed(inputs, head, batch, options.tokens, context)
                in_place.fill(feed)
                _agree(ours(feed)[0], theirs(feed)[0])
                _agree(in_place(feed)[0], theirs(feed)[0])
                sides = (ours, in_place, theirs)
                times = [
                    [turns.thread_seconds(side, feed) for side in sides]
                    for _ in range(options.turns)
                ]
                passed, retained, other = (
                    median(column) * 1e3 for column in zip(*times, strict=True)
                )
                ratio = median(row[2] / row[1] for row in times)
                print(
                    f"| {batch} | {options.tokens} | {context} | {passed:.2f} | {retained:.2f} | "
                    f"{other:.2f} | {ratio:.2f} |",
                    flush=True,
                )
    return 0


def _feed(inputs: dict[str, Any], head: int, batch: int, tokens: int, context: int) -> Arrays:
    random = np.random.default_rng(0)
    feed: Arrays = {}
    for name, entry in inputs.items():
        sizes = [dim.dim_value for dim in entry.type.tensor_type.shape.dim]
        if name == "input_ids":
            feed[name] = random.integers(0, 100, (batch, tokens))
        elif name == "attention_mask":
            feed[name] = np.ones((batch, context + tokens), np.int64)
        elif name == "position_ids":
            feed[name] = np.tile(np.arange(context, context + tokens), (batch, 1))
        else:
            shape = (batch, sizes[1], context, head)
            feed[name] = random.standard_normal(shape, np.float32)
    return feed


def _agree(ours: Any, theirs: Any) -> None:
    apart = np.abs(ours - theirs).mean() / np.abs(theirs).max()
    assert apart < 1e-2, f"the engines differ by {apart:.1e} of the range in the mean"


class CallerOwned:
    """A bundle whose caches stay where they are, filled by a feed's."""

    def __init__(self, model: Path, bundle: Path, tokens: int) -> None:
        if not bundle.exists():
            options = {"verify": False, "profile": False, "state": "lifted"}
            compile_model(model, output=bundle, dims=_DIMS, options=options)
        self._model, self._tokens = load(bundle, threads=1), tokens
        self._buffers: Arrays = {}

    def fill(self, feed: Arrays) -> None:
        """Put a feed's caches into buffers with room for the new tokens."""
        state = self._model.manifest.state
        assert state is not None
        self._buffers = {
            cache.input: np.pad(feed[cache.input], ((0, 0), (0, 0), (0, self._tokens), (0, 0)))
            for cache in state.caches
        }

    def __call__(self, feed: Arrays) -> list[Any]:
        """The outputs; the same rows are written at each call."""
        arguments = {name: feed[name] for name in feed if name not in self._buffers}
        return list(self._model.run({**arguments, **self._buffers}).values())


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.decoder", description=__doc__)
    parser.add_argument("model", type=Path)
    parser.add_argument("--batch", type=int, nargs="+", default=[1])
    parser.add_argument("--tokens", type=int, default=1)
    parser.add_argument("--context", type=int, nargs="+", default=[1, 128, 1024, 2000])
    parser.add_argument("--turns", type=int, default=15)
    parser.add_argument("--built", type=Path, help="a folder that keeps the bundle")
    return parser


if __name__ == "__main__":
    sys.exit(main())

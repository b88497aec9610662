"""Builds real models for CUDA and runs them on the emulator: `python -m tests.cuda_emulator`.

Minutes of processor time a model: no more than a few tokens, or one image.
"""

import argparse
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tests.cuda_emulator import machine
from tests.support.models import known

TOLERANCE = 1e-3
SHAPES: dict[str, known.Shapes] = {
    "minilm": ({"batch": 1, "seq": 1}, {"batch": 1, "seq": 7}, {"batch": 2, "seq": 13}),
    "resnet50": ({"batch": 1},),
    "llama": ({"batch": 1, "seq": 1}, {"batch": 1, "seq": 7}, {"batch": 3, "seq": 11}),
    "gpt2": (
        {"batch": 1, "seq": 3, "past": 0},
        {"batch": 2, "seq": 1, "past": 5},
    ),
    "ppocr_cls": ({"n": 1, "h": 48, "w": 192}, {"n": 2, "h": 33, "w": 65}),
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit status 1 where a model fails, or is further than the tolerance from ONNX Runtime."""
    options = _parser().parse_args(arguments)
    wrong = 0
    print(
        "| Model | Dims | Order | Greatest difference, of the range |",
        "| --- | --- | --- | --- |",
        sep="\n",
    )
    for name in options.models:
        with tempfile.TemporaryDirectory(prefix="relaxd-cuda-") as folder:
            wrong += sum(
                _wrong(name, order, options.target, Path(folder)) for order in options.orders
            )
    return int(wrong > 0)


def _wrong(name: str, order: int, target: str, folder: Path) -> bool:
    model, shapes = known.MODELS[name], SHAPES[name]
    request: dict[str, Any] = {
        "target": target,
        "dims": dict(model.dims),
        "inputs": dict(model.inputs) or None,
        "consts": dict(model.consts) or None,
        "options": {"verify": False, "profile": False},
    }
    feeds = [known.feed_of(name, dims) for dims in shapes]
    outcome = machine.run(known.path_of(name), feeds, folder, request, order)
    if outcome.error:
        print(f"| {name} | | {order} | {outcome.complaints or outcome.error.splitlines()[-1]} |")
        return True
    differences = [
        _difference(outputs, known.reference(name, feed))
        for feed, outputs in zip(feeds, outcome.outputs, strict=True)
    ]
    for dims, difference in zip(shapes, differences, strict=True):
        print(f"| {name} | {dims} | {order} | {difference:.1e} |", flush=True)
    return not max(differences) <= TOLERANCE


def _difference(outputs: machine.Arrays, wanted: machine.Arrays) -> float:
    """The greatest difference over all outputs, of each one's range; not a number stays that."""
    return max(
        float(np.abs(outputs[name] - want).max() / max(np.ptp(want), 1e-6))
        for name, want in wanted.items()
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.cuda_emulator", description=__doc__)
    parser.add_argument("--models", nargs="+", default=list(SHAPES), choices=list(SHAPES))
    parser.add_argument("--target", default="cuda-sm90")
    parser.add_argument("--orders", nargs="+", type=int, default=[machine.RISING])
    return parser


if __name__ == "__main__":
    sys.exit(main())

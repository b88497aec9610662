"""`python -m benchmarks.compiling.warm MODEL..`: what a worker gains from the kernels that others
have compiled: processor seconds and seconds of builds with verification and profile, of the model
with other weights, in turns without a cache of kernels and with that of a build of the model.
"""

import argparse
import os
import sys
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from benchmarks.compiling.__main__ import build, fine_tune
from benchmarks.cpu import subjects

MODELS = ["minilm", "resnet50", "ppocr_det", "ppocr_rec", "mobilenet_v3_large", "magika"]


def main() -> int:
    """Print a row for each model."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.compiling.warm", description=__doc__
    )
    parser.add_argument("models", nargs="*", default=MODELS)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    print(f"{len(os.sched_getaffinity(0))} processors, load {os.getloadavg()[0]:.1f}")
    print("| model | processor seconds: empty | warm | gain | seconds: empty | warm |")
    print("|---|---:|---:|---:|---:|---:|")
    for name in options.models:
        print(_row(name, options.rounds), flush=True)
    return 0


def _row(name: str, rounds: int) -> str:
    with TemporaryDirectory(prefix="relaxd-warm-") as folder:
        # What other programs have compiled on this machine is no part of it.
        os.environ["RELAXD_CACHE_DIR"] = folder
        tuned = fine_tune(subjects.find(name).path, Path(folder, "tuned.onnx"))
        build(name, kernels=True, verified=True)
        turns = [
            (_measure(name, tuned, kernels=False), _measure(name, tuned, kernels=True))
            for _ in range(rounds)
        ]
    empty, warm = zip(*turns, strict=True)
    used, took = ([median(one[n] for one in way) for way in (empty, warm)] for n in (0, 1))
    gain = 100 * (1 - used[1] / used[0])
    return (
        f"| {name} | {used[0]:.1f} | {used[1]:.1f} | {gain:.0f} % | {took[0]:.1f} | {took[1]:.1f} |"
    )


def _measure(name: str, source: Path, *, kernels: bool) -> tuple[float, float]:
    seconds, used = build(name, source, kernels=kernels, verified=True)[:2]
    return used, seconds


if __name__ == "__main__":
    sys.exit(main())

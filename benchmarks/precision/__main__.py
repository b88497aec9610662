"""`python -m benchmarks.precision`: whole models in bfloat16, int8 and float32, ours, OpenVINO's
bfloat16 and calibrated int8, and ONNX Runtime's dynamic quantization, on the same inputs and
threads, one engine running at a time.

Needs a processor with AVX512-BF16 for bfloat16, and `pip install openvino==2026.4.1 nncf==3.4.0`
beside the development environment; an engine that is not there is left out. The error of an engine
is the root of the mean square of its differences from ONNX Runtime in float32, over that of ONNX
Runtime's values, of the worst output.
"""

from __future__ import annotations

import argparse
import importlib.util
import statistics
import sys
from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from benchmarks.cpu import contest
from benchmarks.cpu.rows import ROWS, label
from benchmarks.engines import PACKAGES
from relaxd.timing import rounds
from relaxd.timing.contestants import start_workers

REFERENCE, PLAIN = "onnxruntime", "relaxd"
PEERS = {
    "relaxd.bfloat16": ("openvino.bfloat16",),
    "relaxd.int8": ("onnxruntime.int8", "openvino.int8"),
    "relaxd.int8.smooth": ("openvino.int8",),
    "relaxd.int8.static": ("openvino.int8",),
}
"""Our narrow builds, each with the engines that it is compared with."""
ENGINES = (REFERENCE, PLAIN, "openvino", *PEERS, *chain(*PEERS.values()))


def main() -> int:
    """Print a row for each point of each model."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.precision", description=__doc__)
    parser.add_argument("--models", nargs="*", default=["minilm", "resnet50", "vit_s"])
    parser.add_argument("--engines", nargs="*", default=list(ENGINES), choices=ENGINES)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=0.5)
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    engines = [one for one in options.engines if importlib.util.find_spec(PACKAGES[one])]
    for name in options.models:
        with TemporaryDirectory(prefix="precision-") as folder:
            _run(name, engines, options, Path(folder))
    return 0


def _run(name: str, engines: Sequence[str], options: argparse.Namespace, folder: Path) -> None:
    contest.prepare(name, ROWS[name], options.threads, folder)
    with start_workers(engines, folder, contest.WORKER) as contestants:
        for index, point in enumerate(ROWS[name]):
            for one in contestants:
                one.ask(point=index, save=str(folder / f"made_{one.engine}_{index}.npz"))
            request = {"point": index, "seconds": options.seconds}
            done = rounds.in_turns(contestants, request, options.rounds)
            times = {
                engine: [one.milliseconds[engine] for one in done if engine in one.milliseconds]
                for engine in engines
            }
            print(_line(label(name, point), times, folder, index), flush=True)


def _line(name: str, times: dict[str, list[float]], folder: Path, index: int) -> str:
    medians = {one: statistics.median(result) for one, result in times.items() if result}
    cells = [f"{one} {_cell(medians[one], _error(folder, one, index))}" for one in medians]
    cells += [
        f"{ours} {medians[ours] / medians[other]:.2f} of {other}"
        for ours, peers in PEERS.items()
        for other in (PLAIN, *peers)
        if ours in medians and other in medians
    ]
    return f"{name:24} " + "  ".join(cells)


def _cell(milliseconds: float, error: float | None) -> str:
    return f"{milliseconds:.2f} ms" + ("" if error is None else f" ({error:.2%})")


def _error(folder: Path, engine: str, index: int) -> float | None:
    """None for the reference itself, and without one."""
    files = [folder / f"made_{one}_{index}.npz" for one in (engine, REFERENCE)]
    if engine == REFERENCE or not all(file.exists() for file in files):
        return None
    with np.load(files[0]) as created, np.load(files[1]) as want:
        return max(_relative(created[key], want[key]) for key in want.files)


def _relative(created: np.ndarray, want: np.ndarray) -> float:
    apart = created.astype(np.float64) - want
    return float(np.sqrt(np.square(apart).mean() / np.square(want.astype(np.float64)).mean()))


if __name__ == "__main__":
    sys.exit(main())

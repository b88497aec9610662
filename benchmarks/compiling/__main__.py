"""`python -m benchmarks.compiling`: seconds from request to bundle, without verification and
profile or `--verified` with both, of processes that are started and of processes that a worker
forks, and of these with the kernels of a build of the same model with other weights, in turns; and
the processor seconds of all their processes.
Models are those of the benchmark of processors and of the zoo.
"""

import argparse
import os
import sys
import time
from functools import partial
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

import numpy as np
import onnx
from onnx import numpy_helper

from benchmarks.cpu import subjects
from compiler import api
from compiler.isolation import zygote
from compiler.isolation.messages import Event, StageStarted
from relaxd.contract.request import CompileRequest
from relaxd.contract.states import Stage
from tests.support.models.known import MODELS

_LARGE = 256
_COMPILING = (Stage.LOAD, Stage.IMPORT, Stage.PASS, Stage.CODEGEN, Stage.LINK)
_VERIFIED = (*_COMPILING, Stage.VERIFY, Stage.PROFILE)


def main() -> int:
    """Print a row for each model and way to start its process."""
    options = _parser().parse_args()
    print(f"{len(os.sched_getaffinity(0))} processors, load {os.getloadavg()[0]:.1f}")
    stages_shown = _VERIFIED if options.verified else _COMPILING
    print(
        "| model | process | seconds | processor | "
        + " | ".join(f"from {s}" for s in stages_shown)
        + " |"
    )
    print("|---|---|---:|---:|" + "---:|" * len(stages_shown))
    for name in options.models:
        for process, result in _rounds(name, options.rounds, verified=options.verified).items():
            columns = (median(column) for column in zip(*result, strict=True))
            shown = " | ".join(f"{seconds:.1f}" for seconds in columns)
            print(f"| {name} | {process} | {shown} |", flush=True)
    return 0


def _rounds(name: str, count: int, *, verified: bool) -> dict[str, list[list[float]]]:
    once = partial(build, verified=verified)
    rounds: dict[str, list[list[float]]] = {"started": [], "forked": [], "forked, fine-tuned": []}
    with TemporaryDirectory(prefix="relaxd-compiling-") as folder:
        tuned = fine_tune(subjects.find(name).path, Path(folder, "tuned.onnx"))
        once(name, kernels=True)
        for _ in range(count):
            rounds["started"].append(once(name))
            with zygote.keep_zygote(start=True):
                # A worker's zygote is there before its builds.
                build("silero_vad")
                rounds["forked"].append(once(name))
                rounds["forked, fine-tuned"].append(once(name, tuned, kernels=True))
    return rounds


def fine_tune(source: Path, path: Path) -> Path:
    """The model with the values of each large weight in another order."""
    model, draw = onnx.load(source), np.random.default_rng(0)
    for weight in model.graph.initializer:
        array = numpy_helper.to_array(weight)
        if array.dtype == np.float32 and array.size >= _LARGE:
            values = draw.permutation(array.reshape(-1)).reshape(array.shape)
            weight.CopyFrom(numpy_helper.from_array(values, weight.name))
    onnx.save(model, path)
    return path


def build(
    name: str, source: Path | None = None, *, kernels: bool = False, verified: bool = False
) -> list[float]:
    """Seconds of the whole build, by the clock and of processors, and how long after the request
    each stage began.
    """
    began: dict[Stage, float] = {}
    used: list[float] = []
    path, request = subjects.find(name).path, _request(name, verified=verified)

    def on_event(event: Event) -> None:
        if isinstance(event, StageStarted):
            began[event.stage] = time.perf_counter() - start

    with TemporaryDirectory(prefix="relaxd-compiling-") as folder:
        start = time.perf_counter()
        output = Path(folder, "bundle")
        api.compile_request(
            source or path,
            request,
            output=output,
            target="native",
            on_event=on_event,
            kernels=kernels,
            on_usage=lambda usage: used.append(usage.cpu_seconds),
        )
        seconds = time.perf_counter() - start
        shown = _VERIFIED if verified else _COMPILING
        return [seconds, sum(used), *(began[stage] for stage in shown)]


def _request(name: str, *, verified: bool) -> CompileRequest:
    options = {"verify": verified, "profile": verified}
    if name in MODELS:
        return CompileRequest.of(**MODELS[name].request(options=options))
    model = subjects.find(name)
    return CompileRequest.of(dims=model.dims, inputs=model.inputs, options=options)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.compiling", description=__doc__)
    parser.add_argument("models", nargs="*", default=["minilm", "resnet50", "silero_vad"])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--verified", action="store_true", help="with verification and profile")
    return parser


if __name__ == "__main__":
    sys.exit(main())

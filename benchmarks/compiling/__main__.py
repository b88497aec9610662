"""`python -m benchmarks.compiling`: seconds from request to bundle, without verification and
profile, of processes that are started and of processes that a worker forks, in turns.
"""

import argparse
import os
import sys
import time
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from compiler import api
from compiler.isolation import zygote
from compiler.isolation.messages import Event, StageStarted
from relaxd.contract.request import CompileRequest
from relaxd.contract.states import Stage
from tests.models import MODELS

_SHOWN = (Stage.LOAD, Stage.IMPORT, Stage.PASS, Stage.CODEGEN, Stage.LINK)


def main() -> int:
    """Print a row for each model and way to start its process."""
    options = _parser().parse_args()
    print(f"{len(os.sched_getaffinity(0))} processors, load {os.getloadavg()[0]:.1f}")
    print("| model | process | seconds | " + " | ".join(f"from {s.value}" for s in _SHOWN) + " |")
    print("|---|---|---:|" + "---:|" * len(_SHOWN))
    for name in options.models:
        rounds: dict[str, list[list[float]]] = {"started": [], "forked": []}
        _build(name)
        for _ in range(options.rounds):
            rounds["started"].append(_build(name))
            with zygote.kept(start=True):
                # A worker's zygote is there before its builds.
                _build("silero_vad")
                rounds["forked"].append(_build(name))
        for process, found in rounds.items():
            whole, *stages = (median(column) for column in zip(*found, strict=True))
            shown = " | ".join(f"{seconds:.1f}" for seconds in stages)
            print(f"| {name} | {process} | {whole:.1f} | {shown} |", flush=True)
    return 0


def _build(name: str) -> list[float]:
    """Seconds of the whole build, and how long after the request each stage began."""
    began: dict[Stage, float] = {}
    model = MODELS[name]
    request = CompileRequest.of(**model.request(options={"verify": False, "profile": False}))

    def on_event(event: Event) -> None:
        if isinstance(event, StageStarted):
            began[event.stage] = time.perf_counter() - start

    with TemporaryDirectory(prefix="relaxd-compiling-") as folder:
        start = time.perf_counter()
        output = Path(folder, "bundle")
        api.compile_request(
            model.source(), request, output=output, target="native", on_event=on_event
        )
        return [time.perf_counter() - start, *(began[stage] for stage in _SHOWN)]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.compiling", description=__doc__)
    parser.add_argument("models", nargs="*", default=["minilm", "resnet50", "silero_vad"])
    parser.add_argument("--rounds", type=int, default=5)
    return parser


if __name__ == "__main__":
    sys.exit(main())

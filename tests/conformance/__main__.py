"""Runs onnx's conformance cases: `python -m tests.conformance --mode dynamic --json
dynamic.json`.
"""

import argparse
import contextlib
import json
import os
import random
import re
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from tests.conformance import report, workers
from tests.conformance.cases import Case, collect
from tests.conformance.modes import Mode
from tests.conformance.outcomes import Outcome, Result

ENGINES = {
    "relaxd": "tests.conformance.engines:relaxd",
    "vm": "tests.conformance.engines:machine",
    "onnxruntime": "tests.conformance.engines:onnxruntime",
    "openvino": "benchmarks.importers.nodes:openvino",
    "tvm": "benchmarks.importers.nodes:tvm",
    "iree": "benchmarks.importers.nodes:iree",
}
"""Where each engine's function is; the peers beside ONNX Runtime need what `benchmarks.importers`
needs.
"""

_BROKEN = (Outcome.WRONG, Outcome.CRASH, Outcome.TIMEOUT)


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit status 1 where a case gave a wrong answer, crashed or ran out of time."""
    options = _parser().parse_args(arguments)
    cases = _chosen(collect(), options)
    modes = [Mode(options.mode)] if options.mode else list(Mode)
    runs = {
        mode: _run(
            cases,
            workers.Plan(
                ENGINES[options.engine], mode, options.seconds, options.workers, options.target
            ),
            options.verbose,
        )
        for mode in modes
    }
    if options.json:
        documents = [
            report.document(options.engine, mode, results) for mode, results in runs.items()
        ]
        options.json.write_text(json.dumps(documents, indent=1) + "\n")
    return int(any(result.outcome in _BROKEN for results in runs.values() for result in results))


def _run(cases: Sequence[Case], plan: workers.Plan, verbose: bool) -> list[Result]:
    """Every result, reported on standard output; interrupted, those there are."""
    started = time.monotonic()
    results: list[Result] = []
    with contextlib.suppress(KeyboardInterrupt):
        for result in workers.run(cases, plan):
            results.append(result)
            if verbose or len(results) % 100 == 0:
                print(
                    f"[{len(results)}/{len(cases)}] {result.name} {result.outcome.value} "
                    f"{result.seconds} s {result.why}",
                    file=sys.stderr,
                    flush=True,
                )
    print("\n".join(report.lines(plan.mode, results)))
    print(f"{len(results)} cases in {time.monotonic() - started:.0f} s")
    return results


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.conformance", description=__doc__)
    parser.add_argument("--mode", choices=[mode.value for mode in Mode], help="both unless said")
    parser.add_argument("--engine", choices=list(ENGINES), default="relaxd")
    parser.add_argument(
        "--target",
        help="such as x86-64-v3, for relaxd's engines; this machine has to run it. Or the vector "
        "unit of another processor: 128/16, 128/32, 256/16, 512/32",
    )
    parser.add_argument("--json", type=Path, help="write every result there")
    parser.add_argument(
        "--filter", default="", help="a regular expression that names must match somewhere"
    )
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--seconds", type=float, default=120.0, help="limit of a case")
    parser.add_argument("--sample", type=int, help="run that many cases, drawn with --seed")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--verbose", action="store_true", help="say how each case ended as it ends")
    return parser


def _chosen(cases: Sequence[Case], options: argparse.Namespace) -> list[Case]:
    matching = [case for case in cases if re.search(options.filter, case.name)]
    if options.sample is None:
        return matching
    return random.Random(options.seed).sample(matching, min(options.sample, len(matching)))


if __name__ == "__main__":
    sys.exit(main())

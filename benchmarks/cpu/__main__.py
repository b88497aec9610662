"""`python -m benchmarks.cpu`: relaxd and its peers on the same models, inputs and threads, one
engine running at a time.

Needs `pip install openvino==2026.4.1 iree-base-compiler==3.13.0 iree-base-runtime==3.13.0` beside
the development environment, and matplotlib for `--plot`; an engine that is not installed is left
out and named.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import sys
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.cpu import contest, report
from benchmarks.cpu.rows import ROWS, label
from benchmarks.cpu.work import works_of
from benchmarks.cpu.worker import PEAK_FLOPS
from benchmarks.engines import PACKAGES
from compiler import targets
from compiler.profile.peaks import gflops_meter
from tests import models

ENGINES = ("relaxd", "onnxruntime", "openvino", "torch.compile", "iree")


def main() -> int:
    """Print the table row by row; write JSON, Markdown and the chart where asked."""
    options = _parser().parse_args()
    missing = [
        engine for engine in options.engines if importlib.util.find_spec(PACKAGES[engine]) is None
    ]
    if missing:
        print(f"not installed, left out: {', '.join(missing)}")
    engines = tuple(engine for engine in options.engines if engine not in missing)
    rows = [
        row
        for name in options.models
        for row in _rows(
            name, contest.Plan(engines, options.rounds, options.seconds, options.threads)
        )
    ]
    mean = report.geometric_mean(rows)
    print("geometric mean of the ratios:", "none" if mean is None else f"{mean:.2f}")
    if options.json:
        options.json.write_text(json.dumps({"threads": options.threads, "rows": rows}, indent=1))
    if options.markdown:
        options.markdown.write_text(report.markdown(rows, engines))
    if options.plot:
        report.chart(rows, engines, options.plot)
    return 0


def _rows(name: str, plan: contest.Plan) -> list[dict[str, Any]]:
    with TemporaryDirectory(prefix="cpu-") as folder:
        contest.prepare(name, ROWS[name], plan.threads, Path(folder))
        outcomes = contest.contest(plan, ROWS[name], Path(folder))
    works = works_of(models.path_of(name), [models.feed_of(name, point) for point in ROWS[name]])
    measure = gflops_meter(plan.threads, targets.resolve("native"), PEAK_FLOPS)
    peak = max(measure() for _ in range(20))
    points = zip(ROWS[name], outcomes, works, strict=True)
    rows = [
        {"label": label(name, point), "engines": outcome, "work": asdict(work), "peak_gflops": peak}
        for point, outcome, work in points
    ]
    for row in rows:
        print(report.line(row), flush=True)
    return rows


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.cpu", description=__doc__)
    parser.add_argument("--models", nargs="*", default=list(ROWS), choices=list(ROWS))
    parser.add_argument("--engines", nargs="*", default=list(ENGINES), choices=list(ENGINES))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument(
        "--seconds", type=float, default=1.0, help="of each engine's turn in a round"
    )
    parser.add_argument("--threads", type=int, default=2, help="of every engine")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--markdown", type=Path)
    parser.add_argument("--plot", type=Path)
    return parser


if __name__ == "__main__":
    sys.exit(main())

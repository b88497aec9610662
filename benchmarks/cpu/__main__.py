"""`python -m benchmarks.cpu`: relaxd and its peers on the same models, inputs and threads, one
engine running at a time.

Needs `pip install openvino==2026.4.1 iree-base-compiler==3.13.0 iree-base-runtime==3.13.0` beside
the development environment, the packages that docs/reference/zoo.md names, and matplotlib for
`--plot` and `--regenerate`; an engine or model whose package is not installed is left out and
named.
"""

from __future__ import annotations

import argparse
import importlib.util
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks import documents, turns
from benchmarks.cpu import callers, contest, document, page, report, subjects
from benchmarks.cpu.rows import ROWS, label
from benchmarks.cpu.work import works_of
from benchmarks.cpu.worker import PEAK_FLOPS
from benchmarks.documents import Document
from benchmarks.engines import PACKAGES
from compiler import targets
from compiler.profile.peaks import gflops_meter
from relaxd.timing import quiet
from relaxd.timing.intervals import FEWEST
from tests.zoo.exporting import ExportError

ENGINES = ("relaxd", "onnxruntime", "openvino", "torch.compile", "iree")


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table row by row; write JSON, Markdown, the chart and the page where asked, with
    `--regenerate` those of single kernels too. Exit status 1 with `--strict` where a row is noisy.
    """
    parser = _parser()
    options = parser.parse_args(arguments)
    if options.rounds < FEWEST:
        parser.error(f"--rounds: {FEWEST} or more, of which an interval can be made")
    if options.regenerate:
        options.json = page.FILE
    if options.resume and not options.json:
        parser.error("--resume needs --json FILE or --regenerate")
    record = _callers(options) if options.callers else _table(options)
    if options.markdown:
        options.markdown.write_text(page.section(record) + "\n")
    if options.plot:
        from benchmarks.cpu import chart

        chart.draw(record["rows"], record["engines"], options.plot)
    failed = False
    if options.regenerate:
        page.regenerate(record)
        # Calls at once are a part of their own, beside which kernels would be measured in vain.
        failed = not options.callers and bool(subprocess.call(kernels(options.resume)))
    measured = record["callers" if options.callers else "rows"]
    return int(failed or (options.strict and not all(map(report.is_quiet, measured))))


def kernels(resume: bool) -> list[str]:
    """The command that writes the rest of docs/performance, the roofline of single kernels: a
    process of its own, since it keeps to one thread from its start.
    """
    command = [sys.executable, "-m", "benchmarks.kernels", "--regenerate"]
    return [*command, "--resume"] if resume else command


def _table(options: argparse.Namespace) -> Document:
    """The document with a row for every point of every model."""
    plan = contest.Plan(
        _find_installed(options.engines), options.rounds, options.seconds, options.threads
    )
    record = document.new_document(options.threads, plan.engines)
    named = options.models or list(ROWS)
    # Calls at once are kept even where every row is measured anew.
    again = options.models if options.resume else list(ROWS)
    record = document.resume(record, options.json, again)
    measured = {row["model"] for row in record["rows"]}
    for name in _find_present([one for one in named if one not in measured]):
        try:
            record = document.with_rows(record, _rows(name, plan, options.patience))
        except ExportError as error:
            print(f"{name} left out: torch does not export it: {error}")
        if options.json:
            documents.write(record, options.json)
    print(report.summary(record["rows"]))
    return record


def _callers(options: argparse.Namespace) -> Document:
    """The document of an earlier run, or one without rows, with calls at once."""
    engines = [one for one in options.engines if one in callers.ENGINES]
    plan = contest.Plan(_find_installed(engines), options.rounds, options.seconds, 1)
    record = document.new_document(options.threads, _find_installed(options.engines))
    record = document.resume(record, options.json, [])
    record["callers"] = []
    for name in _find_present(options.models or callers.MODELS):
        turns.wait_until_quiet(options.patience)
        for row in callers.measure(name, options.callers, plan):
            print(callers.line(row), flush=True)
            record["callers"].append(row)
    if options.json:
        documents.write(record, options.json)
    return record


def _find_installed(engines: Sequence[str]) -> tuple[str, ...]:
    missing = [one for one in engines if importlib.util.find_spec(PACKAGES[one]) is None]
    if missing:
        print(f"not installed, left out: {', '.join(missing)}")
    return tuple(engine for engine in engines if engine not in missing)


def _find_present(names: Sequence[str]) -> list[str]:
    missing = {name: package for name in names if (package := subjects.missing_package(name))}
    for name, package in missing.items():
        print(f"{name} left out: the package {package} is not installed")
    return [name for name in names if name not in missing]


def _rows(name: str, plan: contest.Plan, patience: float) -> list[dict[str, Any]]:
    others = turns.wait_until_quiet(patience)
    if others > quiet.MOST:
        print(f"{name}: others use {others:.0%} of the processors", flush=True)
    with TemporaryDirectory(prefix="cpu-") as folder:
        contest.prepare(name, ROWS[name], plan.threads, Path(folder))
        outcomes = contest.contest(plan, ROWS[name], Path(folder))
    for engine, error in report.errors(outcomes):
        print(f"{name}: {engine} fails: {error}", flush=True)
    model = subjects.find(name)
    works = works_of(model.path, [model.feed(point, 0) for point in ROWS[name]])
    measure = gflops_meter(plan.threads, targets.resolve("native"), PEAK_FLOPS)
    peak = max(measure() for _ in range(20))
    rows = [
        {
            "label": label(name, point),
            "model": name,
            **outcome,
            "work": asdict(work),
            "peak_gflops": peak,
        }
        for point, outcome, work in zip(ROWS[name], outcomes, works, strict=True)
    ]
    for row in rows:
        print(report.line(row), flush=True)
    return rows


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.cpu", description=__doc__)
    add = parser.add_argument
    add("--models", nargs="*", default=[], choices=list(ROWS), help="all, unless named")
    add("--engines", nargs="*", default=list(ENGINES), choices=list(ENGINES))
    add("--rounds", type=int, default=11)
    add("--seconds", type=float, default=0.4, help="of each engine's turn in a round")
    add("--threads", type=int, default=2, help="of every engine")
    add("--patience", type=float, default=60, help="seconds to wait for a quiet machine")
    add("--callers", type=int, nargs="+", help="measure so many calls at once, not the table")
    add("--strict", action="store_true", help="exit status 1 where the machine was not quiet")
    add("--json", type=Path)
    add("--resume", action="store_true", help="keep the file's quiet rows of models not named")
    add("--markdown", type=Path)
    add("--plot", type=Path)
    add("--regenerate", action="store_true", help="write docs/performance: page, charts and JSON")
    return parser


if __name__ == "__main__":
    sys.exit(main())

"""Writes the page of the last recorded run: docs/explanation/reliability.md."""

import os
import platform
from collections.abc import Iterator, Sequence
from pathlib import Path

import psutil

from tests.robustness.judge import ROOT, Result
from tests.robustness.row import Row

PAGE = ROOT / "docs" / "explanation" / "reliability.md"

JUDGED = "## Verification, measured both ways"
"""The heading of the last section, which `python -m benchmarks.judge` is the source of."""


def page(results: Sequence[Result], lacking: Sequence[Row] = (), earlier: str = "") -> str:
    """The page's text: when, on what and how much was run, the figures, and what they leave open;
    then the section JUDGED of the earlier text.
    """
    return "\n".join(
        [
            *_head(results),
            *_figures(results),
            *_broken(results),
            *_lacking(lacking),
            *_unproven(results),
            *(_judged(earlier) or [""]),
        ]
    )


def _head(results: Sequence[Result]) -> Iterator[str]:
    days = sorted({result.day for result in results})
    yield "# Reliability: promises held against faults and attacks"
    yield ""
    yield (
        "`make robustness` runs this table. "
        "`python -m tests.robustness --list` names the rows, `--row NAME` runs one, "
        "`--record` writes this page. `make test` repeats a tenth of five rows; "
        '`make robustness ARGS="--scale 0.1 --seed 1"` takes a tenth of all. '
        "`--keep FOLDER --resume --seed N` goes on with a run that was stopped: it leaves out the "
        "rows that held on the same commit with the same seed. A row that was skipped has not held."
    )
    yield ""
    yield f"- Date: {' to '.join(days[:1] + days[1:][-1:])}, {_commits(results)}"
    yield f"- {_amount(results)}{_seeds(results)}"
    yield f"- Machine: {_machine()}"
    yield ""


def _commits(results: Sequence[Result]) -> str:
    """The commit that most rows were run on, and what was run on another."""
    rows: dict[str, list[str]] = {}
    for result in results:
        rows.setdefault(result.commit, []).append(f"`{result.row.name}`")
    most, *others = sorted(rows, key=lambda commit: len(rows[commit]), reverse=True)
    message = [f"commit `{most}`", *(f"{', '.join(rows[other])} on `{other}`" for other in others)]
    return "; ".join(message)


def _amount(results: Sequence[Result]) -> str:
    partial = {
        result.row.name: f"`{result.row.name}` ({result.count} of {result.row.full})"
        for result in results
        if result.count != result.row.full
    }
    if not partial:
        return "Every row below at its full count"
    return f"Full counts, but for {', '.join(partial.values())}"


def _seeds(results: Sequence[Result]) -> str:
    seeds = sorted({result.seed for result in results if result.seed is not None})
    return (
        f"; {'seed' if len(seeds) == 1 else 'seeds'} {', '.join(map(str, seeds))}" if seeds else ""
    )


def _lacking(rows: Sequence[Row]) -> Iterator[str]:
    if rows:
        yield "## Not run at these counts"
        yield ""
        yield f"{', '.join(f'`{row.name}`' for row in rows)}."
        yield ""


def _broken(results: Sequence[Result]) -> Iterator[str]:
    broken = [result for result in results if not (result.is_met or result.skipped)]
    if broken:
        yield "## What broke"
        yield ""
    for result in broken:
        detail = result.outcome.detail.rpartition("\nwhat it left")[0] or result.outcome.detail
        yield f"- `{result.row.name}`: {detail.strip().splitlines()[-1] if detail else 'no detail'}"
    if broken:
        yield ""


def _figures(results: Sequence[Result]) -> Iterator[str]:
    yield "| Row | Faults | Must hold | Result | Figures | Seconds |"
    yield "|---|---|---|---|---|---|"
    for result in results:
        figures = ", ".join(f"{name} {value:g}" for name, value in result.outcome.counts.items())
        message = result.word if not result.skipped else f"skipped: {result.skipped}"
        cells = (
            f"`{result.row.name}`",
            str(result.count),
            result.row.promise,
            message,
            figures,
            f"{result.seconds:.0f}",
        )
        yield f"| {' | '.join(cell.replace('|', '/') for cell in cells)} |"
    yield ""


def _unproven(results: Sequence[Result]) -> Iterator[str]:
    yield "## What a row does not prove"
    yield ""
    for result in results:
        if result.row.unproven:
            yield f"- `{result.row.name}`: {result.row.unproven}"


def _judged(earlier: str) -> list[str]:
    _, heading, text = earlier.partition(JUDGED)
    return ["", heading + text] if heading else []


def _machine() -> str:
    memory = psutil.virtual_memory().total >> 30
    return (
        f"{os.cpu_count()} cores ({_processor()}), {memory} GiB of memory, "
        f"{platform.system()} {platform.release().split('-')[0]}, "
        f"Python {platform.python_version()}"
    )


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        name, _, value = line.partition(":")
        if name.strip() == "model name":
            return value.strip()
    return platform.machine()

"""Writes the page of the last recorded run: docs/reliability.md."""

import os
import platform
import subprocess
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path

import psutil

from tests.robustness.judge import Result

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "reliability.md"


def page(results: Sequence[Result], scale: float, seed: int) -> str:
    """The page's text: when, on what and how much was run, the figures, and what they leave
    open.
    """
    return "\n".join([*_head(scale, seed), *_figures(results), *_unproven(results), ""])


def _head(scale: float, seed: int) -> Iterator[str]:
    amount = "full counts" if scale == 1 else f"{scale:g} of the full counts"
    yield "# Reliability: promises held against faults and attacks"
    yield ""
    yield (
        "`make robustness` runs this table, and each change runs a tenth of it. "
        "`python -m tests.robustness --list` names the rows, `--row NAME` runs one, "
        "`--record` writes this page."
    )
    yield ""
    yield f"- Date: {datetime.now(UTC):%Y-%m-%d}, commit `{_commit()}`"
    yield f"- {amount[0].upper()}{amount[1:]}, seed {seed}"
    yield f"- Machine: {_machine()}"
    yield ""


def _figures(results: Sequence[Result]) -> Iterator[str]:
    yield "| Row | Faults | Must hold | Result | Figures | Seconds |"
    yield "|---|---|---|---|---|---|"
    for result in results:
        figures = ", ".join(f"{name} {value:g}" for name, value in result.outcome.counts.items())
        said = result.word if not result.skipped else f"skipped: {result.skipped}"
        cells = (
            f"`{result.row.name}`",
            str(result.count),
            result.row.promise,
            said,
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


def _commit() -> str:
    command = ["git", "describe", "--always", "--dirty", "--abbrev=12"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.strip() or "unknown"


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

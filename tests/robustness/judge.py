"""Runs rows, each in a folder of its own, and judges what they throw."""

import shutil
import subprocess
import tempfile
import time
import traceback
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from pathlib import Path

import pytest

from tests.robustness.row import Outcome, Row, Run
from tests.service.live import quiet

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Result:
    """A row that was run with `count` faults; `skipped` says what it lacked here: it is not met
    then, as nothing was shown. commit, day, seed: of what was run, when, and what was random.
    """

    row: Row
    count: int
    seconds: float
    outcome: Outcome
    skipped: str = ""
    commit: str = ""
    day: str = ""
    seed: int | None = None

    @property
    def is_met(self) -> bool:
        return self.outcome.is_met and not self.skipped

    @property
    def word(self) -> str:
        if self.skipped:
            return "skipped"
        return "held" if self.outcome.is_met else "broken"


def judge(row: Row, scale: float, seed: int) -> Result:
    """Run one row. The folder of one that does not hold stays, and the detail names it."""
    folder = Path(tempfile.mkdtemp(prefix=f"relaxd-{row.name}-"))
    count, began, skipped = row.scale(scale), time.monotonic(), ""
    try:
        with quiet():
            outcome = row.check(row.run(Run(count, seed, folder)), count)
    except pytest.skip.Exception as error:
        outcome, skipped = Outcome(False), str(error)
    except (Exception, pytest.fail.Exception):
        outcome = Outcome(False, detail=traceback.format_exc())
    seconds = time.monotonic() - began
    if outcome.is_met or skipped:
        shutil.rmtree(folder, ignore_errors=True)
    else:
        detail = f"{outcome.detail}\nwhat it left is in {folder}".strip()
        outcome = Outcome(False, outcome.counts, detail)
    day = f"{datetime.now(UTC):%Y-%m-%d}"
    return Result(row, count, seconds, outcome, skipped, commit(), day, seed)


@cache
def commit() -> str:
    """The commit that is checked out, `-dirty` where files were changed."""
    command = ["git", "describe", "--always", "--dirty", "--abbrev=12"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.strip() or "unknown"

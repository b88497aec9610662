"""Results of rows, kept in a folder: one file a row, so that a table can be run in pieces."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.robustness.judge import Result
from tests.robustness.row import Outcome, Row


def write(folder: Path, result: Result) -> None:
    """Keep a result in place of an earlier one of its row."""
    folder.mkdir(parents=True, exist_ok=True)
    document = {
        "count": result.count,
        "seconds": result.seconds,
        "held": result.outcome.is_met,
        "counts": result.outcome.counts,
        "detail": result.outcome.detail,
        "skipped": result.skipped,
        "commit": result.commit,
        "day": result.day,
        "seed": result.seed,
    }
    (folder / f"{result.row.name}.json").write_text(json.dumps(document, indent=1))


def read(folder: Path | None, rows: Sequence[Row]) -> Iterator[Result]:
    """The results that were kept of these rows."""
    for row in rows if folder else ():
        assert folder is not None
        path = folder / f"{row.name}.json"
        if path.exists():
            retained = json.loads(path.read_text())
            outcome = Outcome(retained.pop("held"), retained.pop("counts"), retained.pop("detail"))
            yield Result(row=row, outcome=outcome, **retained)

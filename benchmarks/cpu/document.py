"""The file of a run: the machine, every row, and calls at once, as JSON from which the page and the
chart are drawn.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks import documents
from benchmarks.cpu.report import is_quiet
from benchmarks.cpu.rows import ROWS
from benchmarks.documents import Document


def new_document(threads: int, engines: Sequence[str]) -> Document:
    """A document without rows, of this machine and day."""
    return {
        "date": datetime.now(UTC).date().isoformat(),
        "machine": documents.machine(),
        "threads": threads,
        "engines": list(engines),
        "rows": [],
        "callers": [],
    }


def resume(new: Document, file: Path | None, again: Sequence[str]) -> Document:
    """Add the results of an earlier run's file to `new`, if machine, threads and engines are the
    same: calls at once, and rows of models that are not in `again` and all of whose rows were
    quiet.
    """
    if file is None or not file.exists():
        return new
    old = json.loads(file.read_text())
    if any(old[name] != new[name] for name in ("machine", "threads", "engines")):
        return new
    unfit = {row["model"] for row in old["rows"] if not is_quiet(row)} | set(again)
    retained = [row for row in old["rows"] if row["model"] not in unfit]
    return {**new, "rows": retained, "callers": old["callers"]}


def with_rows(document: Document, rows: Sequence[Mapping[str, Any]]) -> Document:
    """Add rows, in the order of ROWS."""
    order = {name: index for index, name in enumerate(ROWS)}
    every = sorted([*document["rows"], *rows], key=lambda row: order.get(row["model"], -1))
    return {**document, "rows": every}

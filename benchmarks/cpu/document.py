"""The file of a run: the machine, every row, and calls at once, as JSON from which the page and the
chart are drawn.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks.cpu.report import is_quiet
from benchmarks.cpu.rows import ROWS
from compiler import targets
from compiler.profile.machine import processor
from relaxd.loader.topology import usable_cores

Document = dict[str, Any]


def begun(threads: int, engines: Sequence[str]) -> Document:
    """A document without rows, of this machine and day."""
    native = targets.resolve("native")
    return {
        "date": datetime.now(UTC).date().isoformat(),
        "machine": {
            "processor": processor(),
            "cores": len(usable_cores()),
            "isa": (native.resolved or native.name).partition("+")[0],
            "vector_bits": native.vector_bits,
        },
        "threads": threads,
        "engines": list(engines),
        "rows": [],
        "callers": [],
    }


def resumed(new: Document, file: Path | None, again: Sequence[str]) -> Document:
    """`new` with what an earlier run's file has of the same machine, threads and engines: calls at
    once, and rows of models that are not in `again` and of which every row was quiet.
    """
    if file is None or not file.exists():
        return new
    old = json.loads(file.read_text())
    if any(old[name] != new[name] for name in ("machine", "threads", "engines")):
        return new
    unfit = {row["model"] for row in old["rows"] if not is_quiet(row)} | set(again)
    kept = [row for row in old["rows"] if row["model"] not in unfit]
    return {**new, "rows": kept, "callers": old["callers"]}


def with_rows(document: Document, rows: Sequence[Mapping[str, Any]]) -> Document:
    """With these rows too, in the order of ROWS."""
    places = {name: place for place, name in enumerate(ROWS)}
    every = sorted([*document["rows"], *rows], key=lambda row: places.get(row["model"], -1))
    return {**document, "rows": every}


def write(document: Document, file: Path) -> None:
    """Replace the file, a row a line."""
    parts = []
    for name, value in document.items():
        lines = ",\n  ".join(json.dumps(_rounded(one)) for one in value) if name == "rows" else ""
        text = f"[\n  {lines}\n ]" if lines else json.dumps(_rounded(value))
        parts.append(f" {json.dumps(name)}: {text}")
    unfinished = file.with_suffix(".partial")
    unfinished.write_text("{\n" + ",\n".join(parts) + "\n}\n")
    unfinished.replace(file)


def _rounded(value: Any) -> Any:
    """Five digits of every float."""
    if isinstance(value, float):
        return float(f"{value:.5g}")
    if isinstance(value, Mapping):
        return {name: _rounded(one) for name, one in value.items()}
    return [_rounded(one) for one in value] if isinstance(value, list) else value

"""The file of a run, and the section of docs/performance/accuracy.md that is drawn from it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from statistics import geometric_mean
from typing import Any

from benchmarks import documents
from benchmarks.accuracy.errors import ENGINES
from benchmarks.documents import Document

FILE = documents.FOLDER / "accuracy.json"
PAGE = documents.FOLDER / "accuracy.md"
MARK = "errors"
HIGH = 2.0
"""The ratio from which on a row has to have a reason in the page."""

Row = Mapping[str, Any]


def begin(engines: Sequence[str]) -> Document:
    """A document without rows, of this machine and day."""
    return {
        "date": datetime.now(UTC).date().isoformat(),
        "machine": documents.machine(),
        "engines": list(engines),
        "rows": [],
    }


def resume(file: Path | None, new: Document) -> Document:
    """Return `new` with the rows of an earlier run on the same machine."""
    if file is None or not file.exists():
        return new
    old = json.loads(file.read_text())
    return {**new, "rows": old["rows"]} if old["machine"] == new["machine"] else new


def with_row(document: Document, row: Row) -> Document:
    """Put a row in the place of that of the same subject, or at the end of its group."""
    key = (row["group"], row["name"])
    rows = list(document["rows"])
    positions = [i for i, old in enumerate(rows) if (old["group"], old["name"]) == key]
    if positions:
        rows[positions[0]] = row
    else:
        rows.append(row)
    return {**document, "rows": rows}


def line(row: Row) -> str:
    """A row as text."""
    errors = "  ".join(
        f"{name} {_share(row['errors'][name]['rms'])}" for name in ENGINES if name in row["errors"]
    )
    failures = "".join(f"  {name}: {why}" for name, why in row["failures"].items())
    ratio = "-" if row["ratio"] is None else f"{row['ratio']:.2f}"
    return f"{row['group']} {row['name']}: {ratio}  {errors}{failures}"


def means(rows: Sequence[Row]) -> Iterator[str]:
    """The geometric mean of each group and of all models."""
    for group in dict.fromkeys(row["group"] for row in rows):
        ratios = [row["ratio"] for row in rows if row["group"] == group and row["ratio"]]
        if ratios:
            yield f"{group}: {geometric_mean(ratios):.2f}, at most {max(ratios):.2f}"


def section(document: Document) -> str:
    """The machine, a line for each group, and a row for each subject."""
    rows = [row for row in document["rows"] if row["ratio"]]
    ratios = [row["ratio"] for row in rows if row["group"] == "model"]
    models = (
        f" Geometric mean of the ratios of {len(ratios)} models: {geometric_mean(ratios):.2f}."
        if ratios
        else ""
    )
    high = [f"{row['group']} {row['name']}" for row in rows if row["ratio"] > HIGH]
    return "\n".join(
        [
            f"{documents.describe(document['machine'])}, {document['date']}.{models} "
            f"Above {HIGH:g}: {', '.join(high) if high else 'none'}.",
            "",
            "| group | subject | relaxd | onnxruntime | openvino | ratio | ratio of the largest |",
            "|---|---|---:|---:|---:|---:|---:|",
            *map(_table_line, rows),
        ]
    )


def _table_line(row: Row) -> str:
    errors = (row["errors"].get(name) for name in ENGINES)
    cells = ["-" if error is None else _share(error["rms"]) for error in errors]
    ratios = [f"{row[name]:.2f}" for name in ("ratio", "largest_ratio")]
    return f"| {' | '.join([row['group'], row['name'], *cells, *ratios])} |"


def _share(error: float) -> str:
    """In millionths of the spread."""
    return f"{1e6 * error:.2g}"


def regenerate(document: Document) -> None:
    """Write the page's section."""
    PAGE.write_text(documents.between(PAGE.read_text(), MARK, section(document)))

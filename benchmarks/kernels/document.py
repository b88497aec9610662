"""The file of a run: the machine, what it reaches at most, and every case, as JSON from which the
page and the chart are drawn.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks import documents
from benchmarks.cpu import quiet
from benchmarks.documents import Document
from benchmarks.kernels.case import Case
from benchmarks.kernels.roofline import Rated, rated
from compiler.targets.caches import Caches, host_caches


def begun() -> Document:
    """A document without rows or ceilings, of this machine and day."""
    return {
        "date": datetime.now(UTC).date().isoformat(),
        "machine": documents.machine(),
        "caches": asdict(host_caches()),
        "peaks": {},
        "bandwidth": [],
        "rows": [],
    }


def identity(case: Case) -> dict[str, Any]:
    """What a row says of its case alone; where that is the same, an earlier row still holds."""
    return {
        "family": case.family,
        "group": case.group,
        "shape": case.shape,
        "definition": case.operations,
        "executed": case.executed,
        "bytes": case.bytes,
        "touched": case.touched,
    }


def resumed(new: Document, file: Path, cases: Sequence[Case]) -> Document:
    """`new` with what an earlier run's file has of the same machine: its ceilings, and the quiet
    rows of the cases that there still are.
    """
    if not file.exists():
        return new
    old = json.loads(file.read_text())
    if any(old.get(name) != new[name] for name in ("machine", "caches")):
        return new
    known = [identity(case) for case in cases]
    kept = [
        row
        for row in old["rows"]
        if {name: row[name] for name in known[0]} in known and row["others"] <= quiet.MOST
    ]
    return {**new, "peaks": old["peaks"], "bandwidth": old["bandwidth"], "rows": kept}


def lacking(document: Document, cases: Sequence[Case]) -> list[Case]:
    """The cases without a row."""
    there = {(row["group"], row["shape"]) for row in document["rows"]}
    return [case for case in cases if (case.group, case.shape) not in there]


def with_row(document: Document, row: Mapping[str, Any], cases: Sequence[Case]) -> Document:
    """With this row too, rows being in the order of the cases."""
    places = {(case.group, case.shape): place for place, case in enumerate(cases)}
    every = sorted([*document["rows"], row], key=lambda one: places[one["group"], one["shape"]])
    return {**document, "rows": every}


def ratings(document: Document) -> list[Rated]:
    """Every row under the document's ceilings."""
    caches = Caches(**document["caches"])
    return [rated(row, caches) for row in document["rows"]]


def written(document: Document, file: Path) -> None:
    """Replace the file, each row with what follows from it."""
    rows = [
        {
            **one.row,
            "gflops": one.gflops,
            "gb_s": one.gb_s,
            "flop_per_byte": one.intensity,
            "bound": one.bound,
            "share_of_attainable": one.share,
        }
        for one in ratings(document)
    ]
    documents.write({**document, "rows": rows}, file)

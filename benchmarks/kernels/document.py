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
from benchmarks.documents import Document
from benchmarks.kernels.case import Case
from benchmarks.kernels.roofline import Rating, rate_row
from compiler.targets.caches import Caches, host_caches
from relaxd.timing import quiet


def new_document() -> Document:
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
    """The part of a row that depends on its case alone; if it is the same, an earlier row is
    valid.
    """
    return {
        "family": case.family,
        "group": case.group,
        "shape": case.shape,
        "definition": case.operations,
        "executed": case.executed,
        "bytes": case.bytes,
        "touched": case.touched,
    }


def resume(new: Document, file: Path, cases: Sequence[Case]) -> Document:
    """Add the results of an earlier run's file to `new`, if the machine is the same: its ceilings,
    and the quiet rows of cases that still exist.
    """
    if not file.exists():
        return new
    old = json.loads(file.read_text())
    if any(old.get(name) != new[name] for name in ("machine", "caches")):
        return new
    known = [identity(case) for case in cases]
    retained = [
        row
        for row in old["rows"]
        if {name: row[name] for name in known[0]} in known and row["others"] <= quiet.MOST
    ]
    return {**new, "peaks": old["peaks"], "bandwidth": old["bandwidth"], "rows": retained}


def missing_cases(document: Document, cases: Sequence[Case]) -> list[Case]:
    """The cases without a row."""
    there = {(row["group"], row["shape"]) for row in document["rows"]}
    return [case for case in cases if (case.group, case.shape) not in there]


def with_row(document: Document, row: Mapping[str, Any], cases: Sequence[Case]) -> Document:
    """Add a row, in the order of the cases."""
    order = {(case.group, case.shape): index for index, case in enumerate(cases)}
    every = sorted([*document["rows"], row], key=lambda one: order[one["group"], one["shape"]])
    return {**document, "rows": every}


def ratings(document: Document) -> list[Rating]:
    """Every row under the document's ceilings."""
    caches = Caches(**document["caches"])
    return [rate_row(row, caches) for row in document["rows"]]


def write(document: Document, file: Path) -> None:
    """Replace the file; rows have the figures that follow from them."""
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

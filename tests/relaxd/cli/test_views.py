"""Sizes, durations, jobs and targets as people read them."""

from io import StringIO
from typing import Any

import pytest
from rich.console import Console, RenderableType

from compiler.targets import registry
from relaxd.cli.views import (
    Name,
    builds_table,
    cut_middle,
    digest_lines,
    duration,
    jobs_table,
    missing_lines,
    plain_table,
    size,
    status_mark,
    targets_table,
)


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.0 KiB"),
        (3_399_190, "3.2 MiB"),
        (1 << 30, "1.0 GiB"),
        (5 << 40, "5120.0 GiB"),
    ],
)
def test_sizes(count: int, text: str) -> None:
    assert size(count) == text


@pytest.mark.parametrize(
    ("ended", "text"),
    [
        (None, ""),
        ("2026-01-01T00:00:01.240Z", "1.2 s"),
        ("2026-01-01T00:01:59Z", "119.0 s"),
        ("2026-01-01T00:02:00Z", "2.0 min"),
    ],
)
def test_durations(ended: str | None, text: str) -> None:
    assert duration("2026-01-01T00:00:00Z", ended) == text
    assert duration(None, ended) == ""


def lines(table: RenderableType) -> list[list[str]]:
    out = StringIO()
    Console(file=out, width=400).print(table)
    return [line.split() for line in out.getvalue().splitlines()]


def build(**values: Any) -> dict[str, Any]:
    return {"target": "native", "state": "succeeded", "cached": False, "artifact": None, **values}


def test_a_build_from_the_cache_took_no_time() -> None:
    artifact = {"digest": "sha256:aa", "size": 2048}
    done = build(cached=True, artifact=artifact)
    (_, row) = lines(builds_table([done]))
    assert row[-3:] == ["cached", "2.0", "KiB"]
    assert digest_lines([done, build()]) == ["native: sha256:aa"]


@pytest.mark.parametrize(
    ("status", "mark"),
    [
        ("executed", "[green]executed[/]"),
        ("emulated", "[green]emulated[/]"),
        ("compiled_only", "[bold yellow]compiled_only[/]"),
        ("unverified", "[bold yellow]unverified[/]"),
        (None, ""),
    ],
)
def test_a_status_that_proves_nothing_warns(status: str | None, mark: str) -> None:
    assert status_mark(status) == mark


def test_a_job_without_a_name_goes_by_its_model() -> None:
    job = {
        "id": "j1",
        "state": "failed",
        "model": "sha256:" + "a" * 64,
        "created_at": "2026-01-01T00:00:00Z",
        "finished_at": None,
        "builds": [build(), build(target="aarch64")],
    }
    (_, row) = lines(jobs_table([job]))
    assert row[0] == "j1"
    assert "sha256:" + "a" * 12 in row
    assert "native," in row
    assert "aarch64" in row


def test_workers_are_counted_where_a_service_was_asked() -> None:
    target = {"name": "t", "arch": "x86_64", "status": "compiled_only", "isa": ["avx2"]}
    header, row = lines(targets_table([target]))
    assert "WORKERS" not in header
    assert row == ["t", "x86_64", "linux", "compiled", "only", "avx2"]
    header, row = lines(targets_table([{**target, "workers": ["a", "b"]}]))
    assert "WORKERS" in header
    assert "2" in row


@pytest.mark.parametrize("workers", [{}, {"workers": ["a"]}])
def test_targets_fit_into_80_columns(workers: dict[str, Any]) -> None:
    known = [{**target.to_list(), **workers} for target in registry()]
    out = StringIO()
    Console(file=out, width=80).print(targets_table(known))
    rows = {row.split()[0]: row for row in out.getvalue().splitlines()}
    assert list(rows)[1:] == [target.name for target in registry()]
    assert rows["x86-64-v3"].split()[-1] == "x86-64-v3"
    assert rows["x86-64-v4-vnni"].split()[-1].endswith("vnni")
    assert rows["aarch64-v8.2"].split()[-2:] == ["fp", "fphp"]


def test_what_keeps_targets_from_being_built() -> None:
    targets: list[dict[str, Any]] = [
        {"name": "a", "device": {"lacking": "no toolkit"}},
        {"name": "b", "device": None},
    ]
    assert missing_lines(targets) == ["a: no toolkit"]


def test_names_are_cut_in_the_middle_of_small_columns() -> None:
    name = "/model/encoder/layers.11/attention/output/dense/MatMul"
    table = plain_table("NODE", "WHY")
    table.add_row(Name(name), "no importer for it")
    out = StringIO()
    Console(file=out, width=50).print(table)
    row = out.getvalue().splitlines()[1]
    cut, why = row.split(maxsplit=1)
    start, end = cut.split("…")
    assert name.startswith(start)
    assert name.endswith(end)
    assert len(cut) == 30
    assert why.strip() == "no importer for it"
    assert cut_middle(name, 100) == name

"""The part of docs/performance/README.md that a run writes, between two marks."""

from __future__ import annotations

from benchmarks.cpu import callers, report
from benchmarks.documents import FOLDER, Document, between, describe

PAGE, FILE, CHART = FOLDER / "README.md", FOLDER / "cpu.json", FOLDER / "performance.png"
_NUMBERS = {1: "one thread", 2: "two threads", 4: "four threads"}


def section(document: Document) -> str:
    """One line of the machine and the outcome, the table, and calls at once where measured."""
    threads = document["threads"]
    head = f"{describe(document['machine'])}, {_NUMBERS.get(threads, f'{threads} threads')}"
    rows = document["rows"]
    rounds = sorted({len(row["others"]) for row in rows})
    parts = [
        f"{head}, {document['date']}: {len(rows)} rows of {len({row['model'] for row in rows})} "
        f"models, {' or '.join(map(str, rounds))} rounds, {report.summary(rows)}.",
        report.markdown(rows, document["engines"]).strip(),
        f"[Every round]({FILE.name})",
    ]
    if document["callers"]:
        parts.append(callers.markdown(document["callers"]).strip())
    return "\n\n".join(parts)


def regenerate(document: Document) -> None:
    """Write the page's table and the chart."""
    from benchmarks.cpu import chart

    PAGE.write_text(between(PAGE.read_text(), "table", section(document)))
    chart.draw(document["rows"], document["engines"], CHART)

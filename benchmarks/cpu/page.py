"""The part of docs/performance/README.md that a run writes, between two marks."""

from __future__ import annotations

from pathlib import Path

from benchmarks.cpu import callers, report
from benchmarks.cpu.document import Document

FOLDER = Path(__file__).parents[2] / "docs/performance"
PAGE, FILE, CHART = FOLDER / "README.md", FOLDER / "cpu.json", FOLDER / "performance.png"
_NUMBERS = {1: "one thread", 2: "two threads", 4: "four threads"}


def section(document: Document) -> str:
    """One line of the machine and the outcome, the table, and calls at once where measured."""
    machine, threads = document["machine"], document["threads"]
    place = f"{machine['processor']}, {machine['cores']} cores, {machine['isa']}"
    width = f"vectors of {machine['vector_bits']} bits"
    head = f"{place} with {width}, {_NUMBERS.get(threads, f'{threads} threads')}"
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


def between(text: str, name: str, content: str) -> str:
    """The text with other content between `<!-- NAME -->` and `<!-- /NAME -->`; raises ValueError
    where it lacks either.
    """
    first, last = f"<!-- {name} -->", f"<!-- /{name} -->"
    start = text.index(first) + len(first)
    end = text.index(last, start)
    return f"{text[:start]}\n\n{content}\n\n{text[end:]}"


def regenerate(document: Document) -> None:
    """Write the page's table and the chart."""
    from benchmarks.cpu import chart

    PAGE.write_text(between(PAGE.read_text(), "table", section(document)))
    chart.draw(document["rows"], document["engines"], CHART)

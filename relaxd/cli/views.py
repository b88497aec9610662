"""Jobs and targets as tables."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.markup import escape
from rich.measure import Measurement
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from relaxd.cli.progress import mark
from relaxd.contract.bundle.numerics import RUN_STATUSES, Numerics

SHORT = frozenset(
    {
        "ID",
        "STATE",
        "TARGET",
        "STAGE",
        "TOOK",
        "SIZE",
        "CREATED",
        "ARCH",
        "STATUS",
        "KIND",
        "OS",
        "FAMILY",
    }
)
LONG = 30
SHORTEST = 16
"""The narrowest column for a name that is cut."""
UNITS = ("B", "KiB", "MiB", "GiB")


def size(count: int) -> str:
    """Bytes in words: `3.4 MiB`."""
    value, unit = float(count), 0
    while value >= 1024 and unit < len(UNITS) - 1:
        value, unit = value / 1024, unit + 1
    return f"{value:.0f} {UNITS[unit]}" if unit == 0 else f"{value:.1f} {UNITS[unit]}"


def count(number: int) -> str:
    """A large number in words: `3.4 M`."""
    for unit, factor in (("T", 10**12), ("G", 10**9), ("M", 10**6), ("k", 10**3)):
        if number >= factor:
            return f"{number / factor:.3g} {unit}"
    return str(number)


def duration(began: str | None, ended: str | None) -> str:
    """Seconds between two times of the wire, empty when either is missing."""
    if not began or not ended:
        return ""
    seconds = (datetime.fromisoformat(ended) - datetime.fromisoformat(began)).total_seconds()
    return f"{seconds:.1f} s" if seconds < 120 else f"{seconds / 60:.1f} min"


def shorten_list(names: Sequence[str], most: int = 3) -> str:
    """The first names, and how many more there are."""
    rest = len(names) - most
    return ", ".join(names[:most]) + (f" and {rest} more" if rest > 0 else "")


class Name:
    """A name as a cell of a table, cut in the middle where its column is narrower."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __str__(self) -> str:
        return escape(self.name)

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        width = cell_len(self.name)
        return Measurement(min(width, SHORTEST), width)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield Text(cut_middle(self.name, options.max_width), no_wrap=True, overflow="ellipsis")


def cut_middle(name: str, width: int) -> str:
    """The name in at most so many characters, with the middle replaced by an ellipsis."""
    if len(name) <= width:
        return name
    end = width // 2
    return f"{name[: width - 1 - end]}…{name[len(name) - end :]}"


def plain_table(*columns: str) -> Table:
    """A table without lines, as command lines print them."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for column in columns:
        table.add_column(column, overflow="fold", no_wrap=column in SHORT)
    return table


class FittingTable:
    """A table of names and facts; where a terminal is too narrow for it, a paragraph for each name,
    since cells that wrap into columns of single words cannot be read.
    """

    def __init__(self, table: Table) -> None:
        names = table.columns[0]
        longest = max(_text_of(cell).cell_len for cell in (names.header, *names.cells))
        # Names stay whole, unless they are very long themselves.
        names.min_width = min(longest, LONG)
        self._table = table

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        if self._needed() <= options.max_width:
            yield self._table
            return
        headers = [_text_of(column.header).plain.lower() for column in self._table.columns]
        for name, *cells in zip(*(column.cells for column in self._table.columns), strict=True):
            yield Text(cut_middle(_text_of(name).plain, options.max_width), style="bold")
            facts = [
                Text.assemble((f"{header} ", "dim"), text)
                for header, text in zip(headers[1:], map(_text_of, cells), strict=True)
                if text
            ]
            paragraph = Text("; ").join(facts)
            # Padding would cut what a pipe gets, where nothing is wrapped.
            yield (
                Text.assemble("  ", paragraph)
                if options.no_wrap
                else Padding(paragraph, (0, 0, 0, 2))
            )

    def _needed(self) -> int:
        """The width at which no cell but a name wraps."""
        gap = self._table.padding[1]
        names, *facts = self._table.columns
        widths = [
            max(_text_of(cell).cell_len for cell in (column.header, *column.cells))
            for column in facts
        ]
        return (names.min_width or 0) + sum(width + gap for width in widths)


def _text_of(cell: RenderableType) -> Text:
    return cell if isinstance(cell, Text) else Text.from_markup(str(cell))


def status_mark(status: str | None) -> str:
    """A build's status, in a colour that warns unless its library was run; empty where there is
    none.
    """
    colour = "green" if status in RUN_STATUSES else "bold yellow"
    return f"[{colour}]{escape(status)}[/]" if status else ""


def warning_lines(report: Numerics) -> list[Text]:
    """One line for each warning of a verification."""
    return [Text.assemble(("warning: ", "bold yellow"), warning) for warning in report.warnings]


def jobs_table(jobs: list[dict[str, Any]]) -> Table:
    """One job a row."""
    table = plain_table("ID", "STATE", "MODEL", "TARGETS", "CREATED", "TOOK")
    for job in jobs:
        created = datetime.fromisoformat(job["created_at"]).astimezone()
        targets = ", ".join(build["target"] for build in job["builds"])
        took = duration(job["created_at"], job["finished_at"])
        table.add_row(
            job["id"],
            mark(job["state"]),
            job.get("name") or job["model"][:19],
            targets,
            f"{created:%Y-%m-%d %H:%M:%S}",
            took,
        )
    return table


def builds_table(builds: list[dict[str, Any]]) -> Table:
    """One build a row."""
    table = plain_table("TARGET", "STATE", "STATUS", "STAGE", "TOOK", "SIZE")
    for build in builds:
        artifact = build.get("artifact") or {}
        took = (
            "cached"
            if build["cached"]
            else duration(build.get("started_at"), build.get("finished_at"))
        )
        weight = size(artifact["size"]) if artifact else ""
        table.add_row(
            build["target"],
            mark(build["state"]),
            status_mark(build.get("status")),
            build.get("stage") or "",
            took,
            weight,
        )
    return table


def digest_lines(builds: list[dict[str, Any]]) -> list[str]:
    """One line for each build that has a bundle: a digest is too long for a column, and one that is
    folded can be neither copied nor searched for.
    """
    return [
        f"{build['target']}: {build['artifact']['digest']}"
        for build in builds
        if build.get("artifact")
    ]


def urgency_line(job: dict[str, Any]) -> str:
    """A job's priority and deadline in words, empty where it has neither."""
    parts = [f"priority {job['priority']}"] if job.get("priority") else []
    if job.get("deadline"):
        until = datetime.fromisoformat(job["deadline"]).astimezone()
        parts.append(f"builds may begin until {until:%Y-%m-%d %H:%M:%S}")
    return ", ".join(parts)


def targets_table(targets: list[dict[str, Any]]) -> Table:
    """One target a line; the workers' column is there when a service was asked."""
    served = any("workers" in target for target in targets)
    table = plain_table("TARGET", "ARCH", "OS", "STATUS", *(["WORKERS"] if served else []), "ISA")
    for target in targets:
        table.add_row(
            target["name"],
            target["arch"],
            target.get("platform", {}).get("os", "linux"),
            str(target["status"]).replace("_", " "),
            *([str(_count(target.get("workers")))] if served else []),
            Name(_instruction_set(target)),
        )
    return table


def _instruction_set(target: dict[str, Any]) -> str:
    """A level of the x86-64 psABI and what lies beyond it; every feature of other processors."""
    level = str(target.get("cpu", ""))
    if not level.startswith("x86-64"):
        return " ".join(target.get("isa", []))
    return " ".join((level, *(name for name in target.get("features", []) if name[0] == "+")))


def missing_lines(targets: list[dict[str, Any]]) -> list[str]:
    """Lists the missing tools of targets that cannot be compiled for, one line a target."""
    return [
        f"{target['name']}: {reason}"
        for target in targets
        if (reason := (target.get("device") or {}).get("lacking"))
    ]


def _count(workers: Any) -> int:
    return len(workers) if isinstance(workers, list) else int(workers or 0)

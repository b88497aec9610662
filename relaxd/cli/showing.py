"""`relaxd show`: everything that is known of a build, by folder, tar, digest or job."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Group, RenderableType
from rich.markup import escape
from rich.text import Text

from relaxd.cli import declarations as declare
from relaxd.cli.command import Json
from relaxd.cli.console import print_json, stdout
from relaxd.cli.views import plain_table, shortened, size, status_mark
from relaxd.client import Client
from relaxd.client.client import DEFAULT_URL
from relaxd.contract.profile import KernelTime, Machine, Profile, TimedPoint
from relaxd.contract.report import DimReport, NumericsReport, Report

MOST_KERNELS = 12

Build = Annotated[
    str,
    typer.Argument(
        metavar="BUNDLE|DIGEST|JOB",
        help="A bundle's folder or tar, its digest, or the job that built it.",
        show_default=False,
    ),
]


def show_command(
    ref: Build,
    target: declare.OneTarget = None,
    server: declare.Server = None,
    token: declare.Token = None,
    json: Json = False,
) -> None:
    """Explain a build: what was tested, how fast it is beside ONNX Runtime, and where time goes.

    Example: [bold]relaxd show out/[/]
    """
    report = build_report(ref, target, server, token)
    if json:
        print_json(report.to_json())
    else:
        stdout().print(render(report))


def build_report(
    ref: str, target: str | None = None, server: str | None = None, token: str | None = None
) -> Report:
    """The report of a folder or tar, else what a service says of a digest or job."""
    if Path(ref).exists():
        from relaxd.loader.report import report_of

        return report_of(Path(ref))
    with Client(server or DEFAULT_URL, token=token) as client:
        return client.report(ref, target)


def render(report: Report) -> Group:
    """One section for each question that people ask, the answer in a sentence first."""
    parts: list[RenderableType] = [_headline(report), Text()]
    parts += [Text(f"• {sentence}") for sentence in report.sentences]
    profile = report.profile
    parts += _titled("Dims", _dims(report.dims)) if report.dims else []
    if profile is not None:
        parts += _titled(f"Latency{_where(profile.machine)}", _latency(profile))
        parts += _kernels(profile)
        parts += _titled("Memory and load", _costs(report, profile))
    parts += _titled("Numerics", _numerics(report.numerics))
    return Group(*parts)


def _headline(report: Report) -> Text:
    status = status_mark(report.target.status)
    line = Text.from_markup(
        f"[bold]{escape(report.name)}[/] for {escape(report.target.name)} {status}  "
        f"{size(report.sizes.total)} (library {size(report.sizes.library)}, "
        f"weights {size(report.sizes.weights)})"
    )
    return line.append(f"\n{report.digest}", style="dim") if report.digest else line


def _titled(title: str, content: RenderableType) -> list[RenderableType]:
    return [Text(), Text(title, style="bold underline"), content]


def _dims(dims: tuple[DimReport, ...]) -> RenderableType:
    table = plain_table("DIM", "RANGE", "COMPARED TO", "MEASURED TO")
    for dim in dims:
        top = "" if dim.max is None else str(dim.max)
        step = f", multiples of {dim.multiple}" if dim.multiple > 1 else ""
        tested = [
            "not" if value is None else str(value)
            for value in (dim.verified_up_to, dim.measured_up_to)
        ]
        table.add_row(escape(dim.name), f"{dim.min} to {top or 'any'}{step}", *tested)
    return table


def _where(machine: Machine) -> str:
    known = [
        machine.processor,
        f"{machine.threads} threads" if machine.threads else None,
        f"load {machine.load_average[0]:.1f}" if machine.load_average else None,
        f"governor {machine.governor}" if machine.governor else None,
    ]
    text = ", ".join(part for part in known if part)
    return f" on {text}" if text else ""


def _latency(profile: Profile) -> RenderableType:
    references = any(point.reference for point in profile.points)
    engine = next((p.reference.engine for p in profile.points if p.reference), "")
    columns = ["DIMS", "MEDIAN", "QUARTILES", "MIN", "RUNS"]
    columns += [engine.upper(), "TIMES AS FAST"] if references else []
    table = plain_table(*columns)
    for point in profile.points:
        table.add_row(*_timed(point, references))
    for skipped in profile.left_out:
        table.add_row(_at(skipped.dims), Text(skipped.reason, style="dim"))
    return table


def _timed(point: TimedPoint, references: bool) -> list[str]:
    quartiles = f"{_ms(point.p25_ms)} to {_ms(point.p75_ms)}" if point.p25_ms is not None else ""
    runs = f"{point.runs}{'' if point.stable is not False else ', not stable'}"
    cells = [_at(point.dims), f"{_ms(point.median_ms)} ms", quartiles, _ms(point.min_ms), runs]
    if references and point.reference is not None:
        ratio = point.reference.median_ms / point.median_ms if point.median_ms else 0.0
        colour = "green" if ratio >= 1 else "yellow"
        cells += [f"{_ms(point.reference.median_ms)} ms", f"[{colour}]{ratio:.2f}[/]"]
    return cells


def _ms(value: float | None) -> str:
    return "" if value is None else f"{value:.3g}"


def _kernels(profile: Profile) -> list[RenderableType]:
    if profile.operators is None:
        return []
    table = plain_table("SHARE", "KERNEL", "CALLS", "TILE", "OF PEAK", "NODES")
    rows = profile.operators.rows
    for row in rows[:MOST_KERNELS]:
        family = f"{row.family} {row.tile or ''}".strip() if row.family else ""
        table.add_row(
            f"{row.share:.1%}",
            escape(row.name),
            str(row.calls),
            escape(family),
            _of_peak(row),
            escape(shortened(row.nodes)),
        )
    if len(rows) > MOST_KERNELS:
        rest = sum(row.share for row in rows[MOST_KERNELS:])
        table.add_row(f"{rest:.1%}", Text(f"{len(rows) - MOST_KERNELS} more", style="dim"))
    return _titled(f"Kernels at {_at(profile.operators.dims)}", table)


def _of_peak(row: KernelTime) -> str:
    return "" if row.percent_of_peak is None else f"{row.percent_of_peak:.0f} % ({row.bound})"


def _costs(report: Report, profile: Profile) -> RenderableType:
    facts = [
        ("load", f"{profile.load_ms:.0f} ms" if profile.load_ms is not None else None),
        ("process", size(profile.peak_rss_bytes) if profile.peak_rss_bytes else None),
        (
            "tensors, every dim at its maximum",
            size(report.memory.planned_bytes) if report.memory.planned_bytes is not None else None,
        ),
    ]
    table = plain_table("WHAT", "HOW MUCH")
    for name, value in facts:
        if value is not None:
            table.add_row(name, value)
    return table


def _numerics(numerics: NumericsReport) -> RenderableType:
    if not numerics.outputs:
        return Text(f"not compared{f': {numerics.reason}' if numerics.reason else ''}")
    columns = ("OUTPUT", "VERDICT", "LARGEST DIFFERENCE", "OF VALUES TO", "AT", "TOLERANCE")
    table = plain_table(*columns)
    for output in numerics.outputs:
        table.add_row(
            escape(output.name),
            output.verdict,
            f"{output.max_abs:.2g}" if output.max_abs is not None else "",
            f"{output.range:.3g}" if output.range is not None else "",
            _at(output.worst.dims) if output.worst else "",
            f"{output.atol:g} + {output.rtol:g} of it" if output.atol is not None else "",
        )
    against = Text(f"against {numerics.reference}", style="dim")
    return Group(table, against) if numerics.reference else table


def _at(dims: dict[str, int]) -> str:
    return escape(" ".join(f"{name}={value}" for name, value in dims.items())) or "the only shape"

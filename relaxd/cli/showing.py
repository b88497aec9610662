"""`relaxd show`: everything that is known of a build, by folder, tar, digest or job."""

import json as json_format
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Group, RenderableType
from rich.markup import escape
from rich.text import Text

from relaxd.cli import declarations as declare
from relaxd.cli.asking import asking
from relaxd.cli.command import Json
from relaxd.cli.console import print_json, stderr, stdout
from relaxd.cli.views import (
    FittingTable,
    Name,
    count,
    plain_table,
    shorten_list,
    size,
    status_mark,
)
from relaxd.contract.bundle.profile import CostModel, KernelTime, Machine, Profile, TimedPoint
from relaxd.contract.bundle.report import (
    ComparedPoint,
    ComparedStrings,
    DimReport,
    Evidence,
    NumericsReport,
    OutputReport,
    QuantizedReport,
    Report,
    StoredReport,
    Tensor,
    WeightsReport,
)
from relaxd.contract.dims.dims import point_text
from relaxd.contract.dims.tensors import TEXT
from relaxd.errors import DeclarationError
from relaxd.reports.kernels import rank_kernels

MOST_KERNELS, MOST_OUTPUTS, MOST_KEPT = 12, 4, 4
NOT_MEASURED = "-"

Build = Annotated[
    str,
    typer.Argument(
        metavar="BUNDLE|DIGEST|JOB",
        help="A bundle's folder or tar, its digest, or the job that built it.",
        show_default=False,
    ),
]

Trace = Annotated[
    Path | None,
    typer.Option(
        "--trace",
        metavar="FILE",
        help="Write the profiled run as trace events, for ui.perfetto.dev or Chrome.",
        show_default=False,
    ),
]


def show_command(
    ref: Build,
    trace: Trace = None,
    target: declare.OneTarget = None,
    server: declare.Server = None,
    token: declare.Token = None,
    json: Json = False,
) -> None:
    """Explain a build: what was tested, how fast it is beside ONNX Runtime, and where time goes.

    Example: [bold]relaxd show out/[/]
    """
    report = build_report(ref, target, server, token)
    if trace is not None:
        _write_trace(report, trace)
    if json:
        print_json(report.to_json())
    else:
        stdout().print(render(report))


def _write_trace(report: Report, path: Path) -> None:
    from relaxd.reports.trace import trace

    content = json_format.dumps(trace(report), indent=1)
    try:
        path.write_text(content)
    except OSError as error:
        raise DeclarationError(
            f"cannot write {path}: {error.strerror}", field="trace", hint="give another path"
        ) from error
    stderr().print(f"wrote {path}", markup=False)


def build_report(
    ref: str, target: str | None = None, server: str | None = None, token: str | None = None
) -> Report:
    """The report of a folder or tar, else what a service says of a digest or job."""
    if Path(ref).exists():
        from relaxd.loader.report import report_of

        return report_of(Path(ref))
    with asking(ref, server, token) as client:
        return client.report(ref, target)


def render(report: Report) -> Group:
    """One section for each question that people ask, the answer in a sentence first."""
    parts: list[RenderableType] = [_headline(report), Text()]
    parts += [Text(f"• {sentence}") for sentence in report.sentences]
    profile = report.profile
    parts += _titled("Strings", _strings(report)) if report.strings else []
    parts += _titled("Dims", _dims(report.dims)) if report.dims else []
    if profile is not None:
        parts += _titled(f"Latency{where(profile.machine)}", _latency(profile))
        parts += _kernels(profile)
        parts += _titled("Memory and load", _costs(report, profile))
    parts += _titled("Numerics", _numerics(report.numerics))
    parts += _titled("Weights", _weights(report, report.stored)) if report.stored else []
    parts += _titled("Precision", _precision(report, report.narrow)) if report.narrow else []
    parts += _titled("KV cache", _caches(report.numerics.cache)) if report.numerics.cache else []
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


def _strings(report: Report) -> RenderableType:
    """The strings of a caller in Python, the numbers of any other, and how the steps between them
    were compared.
    """
    strings, compared = report.strings, report.numerics.strings
    assert strings is not None
    table = plain_table("", "IN PYTHON", "LIBRARY")
    for title, own, library, steps in (
        ("inputs", strings.inputs, report.inputs, strings.encoded),
        ("outputs", strings.outputs, report.outputs, strings.decoded),
    ):
        texts = [f"{one.name} {_type(one)}" for one in own if one.dtype == TEXT]
        numbers = [f"{one.name} {_type(one)}" for one in library if one.name in steps]
        if texts:
            table.add_row(title, escape("\n".join(texts)), escape("\n".join(numbers)))
    return Group(table, Text(_compared(compared), style="dim"))


def _type(tensor: Tensor) -> str:
    return f"{tensor.dtype}[{','.join(tensor.shape)}]"


def _compared(compared: ComparedStrings | None) -> str:
    if compared is None or not compared.compared:
        why = compared.reason if compared and compared.reason else "verification is off"
        return f"the steps between them were not compared: {why}"
    return f"equal to {compared.reference} at {compared.compared} samples of strings"


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
    return FittingTable(table)


def where(machine: Machine) -> str:
    """The machine of a profile, to be put behind a number; empty where nothing is known of it."""
    known = [
        machine.processor,
        f"{machine.threads} thread{'s' if machine.threads > 1 else ''}"
        if machine.threads
        else None,
        f"load {machine.load_average[0]:.1f}" if machine.load_average else None,
        f"governor {machine.governor}" if machine.governor else None,
    ]
    text = ", ".join(part for part in known if part)
    return f" on {text}" if text else ""


def _latency(profile: Profile) -> RenderableType:
    references = any(point.reference for point in profile.points)
    engine = next((p.reference.engine for p in profile.points if p.reference), "")
    columns = ["DIMS", "MEDIAN ms", "QUARTILES", "MIN", "RUNS"]
    columns += [f"{engine.partition(' ')[0].upper()} ms", "RATIO"] if references else []
    table = plain_table(*columns)
    usual = [point for point in profile.points if not point.label.startswith("grid")]
    for point in usual:
        table.add_row(*_timed(point, references))
    for skipped in profile.left_out:
        table.add_row(_point(skipped.dims), NOT_MEASURED)
    rest = len(profile.points) - len(usual)
    notes = (
        [Text(f"and {rest} point{'' if rest == 1 else 's'} of a grid", style="dim")] if rest else []
    )
    reasons = dict.fromkeys(skipped.reason for skipped in profile.left_out)
    notes += [Text(f"{NOT_MEASURED} not measured: {reason}", style="dim") for reason in reasons]
    notes += [_cost(profile.cost)] if profile.cost else []
    notes += [Text(f"against {engine}", style="dim")] if engine else []
    return Group(FittingTable(table), *notes)


def _cost(cost: CostModel) -> Text:
    """The fitted sum, in the words of a formula."""
    terms = [
        "·".join([_ms(term.ms), *(_power(name, power) for name, power in term.dims.items())])
        for term in cost.terms
    ]
    return Text(
        f"about {' + '.join(terms)} ms, off by {cost.error_median:.1%} at the median and "
        f"{cost.error_max:.1%} at most: relaxd estimate",
        style="dim",
    )


def _power(name: str, power: int) -> str:
    return name if power == 1 else f"{name}^{power}"


def _timed(point: TimedPoint, references: bool) -> list[str]:
    quartiles = f"{_ms(point.p25_ms)} to {_ms(point.p75_ms)}" if point.p25_ms is not None else ""
    runs = f"{point.runs}{'' if point.stable is not False else ', not stable'}"
    cells = [_point(point.dims), _ms(point.median_ms), quartiles, _ms(point.min_ms), runs]
    if references and point.reference is not None:
        ratio = point.reference.median_ms / point.median_ms if point.median_ms else 0.0
        colour = "green" if ratio >= 1 else "yellow"
        cells += [_ms(point.reference.median_ms), f"[{colour}]{ratio:.2f}[/]"]
    return cells


def _ms(value: float | None) -> str:
    return "" if value is None else f"{value:.3g}"


def _kernels(profile: Profile) -> list[RenderableType]:
    """One row a kernel, below its name what it is scheduled as and the nodes that it computes."""
    if profile.operators is None:
        return []
    table = plain_table("SHARE", "CALLS", "FLOP", "BYTES", "OF PEAK", "KERNEL")
    rows = rank_kernels(profile.operators.rows, MOST_KERNELS)
    for row in rows:
        table.add_row(
            f"{row.share:.1%}",
            str(row.calls),
            "" if row.flops is None else count(row.flops),
            "" if row.bytes is None else size(row.bytes),
            _of_peak(row),
            _named(row),
        )
    peaks = _peaks(profile.machine)
    parts = Group(table, peaks) if peaks else table
    return _titled(f"Kernels at {_point(profile.operators.dims)}", parts)


def _named(row: KernelTime) -> Text:
    scheduled = f"{row.family} {row.tile or ''}".strip() if row.family else ""
    about = ": ".join(part for part in (scheduled, shorten_list(row.nodes)) if part)
    return Text.assemble(row.name, (f"\n{about}" if about else "", "dim"))


def _peaks(machine: Machine) -> Text | None:
    if machine.peak_gflops is None or machine.peak_gb_s is None:
        return None
    return Text(
        f"peaks of this machine: {machine.peak_gflops:.0f} GFLOP/s, "
        f"{machine.peak_gb_s:.0f} GB/s from memory",
        style="dim",
    )


def _of_peak(row: KernelTime) -> str:
    if row.percent_of_peak is None:
        return escape(row.bound or "")
    return f"{row.percent_of_peak:.0f} % {row.bound}"


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
    columns = ("OUTPUT", "VERDICT", "LARGEST ERROR", "LARGEST VALUE", "WORST AT", "ALLOWED")
    table = plain_table(*columns)
    for output in numerics.outputs:
        table.add_row(
            Name(output.name),
            output.verdict.replace("_", " "),
            f"{output.max_abs:.2g}" if output.max_abs is not None else "",
            f"{output.range:.3g}" if output.range is not None else "",
            _point(output.worst.dims) if output.worst else "",
            _tolerance(output),
        )
    against = [Text(f"against {numerics.reference}", style="dim")] if numerics.reference else []
    evidence = [Text(line, style="dim") for line in _evidence_lines(numerics)]
    return Group(FittingTable(table), *against, *evidence, *_by_point(numerics.outputs))


def _evidence_lines(numerics: NumericsReport) -> Iterator[str]:
    """Say what decided for outputs that deviate from the reference, and what computed float64."""
    departing = [output for output in numerics.outputs if output.evidence is not None]
    for output in departing[:MOST_OUTPUTS]:
        assert output.evidence is not None
        evidence = output.evidence
        distances = {
            "the library": evidence.error_rms,
            "perturbed references": evidence.noise_rms,
        }
        spread = output.spread or 1.0
        shares = [
            f"{name} {value / spread:.2g}" for name, value in distances.items() if value is not None
        ]
        exact = {"the library": evidence.library_error, "the reference": evidence.reference_error}
        far = [f"{name} {value:.2g}" for name, value in exact.items() if value is not None]
        parts = [
            evidence.why,
            f"root mean square of differences, of the spread: {', '.join(shares)}"
            if shares
            else "",
            f"largest distance from float64: {', '.join(far)}" if far else "",
            _argmax(evidence),
        ]
        yield f"{output.name}: {'; '.join(filter(None, parts))}"
    if numerics.float64:
        yield f"float64: {numerics.float64}"


def _argmax(evidence: Evidence) -> str:
    if evidence.argmax is None or evidence.perturbed_argmax is None:
        return ""
    return (
        f"the greatest element is the reference's in {evidence.argmax:.1%} of the rows, in "
        f"perturbed references {evidence.perturbed_argmax:.1%}"
    )


def _tolerance(output: OutputReport) -> str:
    if output.atol is None:
        return ""
    slack = f" + rounding {output.slack:.2g}" if output.slack else ""
    return f"atol {output.atol:g} + rtol {output.rtol:g}{slack}"


def _weights(report: Report, stored: StoredReport) -> RenderableType:
    """Describe what quantizing the weights saves, and the error of each output."""
    blocks = f" in blocks of {stored.block}" if stored.block > 1 else ""
    lines: list[RenderableType] = [
        Text(
            f"{stored.layers} of {stored.layers + len(stored.kept)} large weights are "
            f"{stored.form}{blocks}: {size(stored.bytes)} in place of {size(stored.before)}"
        )
    ]
    if stored.calibration != "none":
        calibrated = stored.layers - len(stored.nearest)
        lines.append(Text(f"{calibrated} of them are quantized with {stored.calibration}"))
    reasons = Counter(stored.nearest.values()).most_common(MOST_KEPT)
    lines += [Text(f"{number} rounded to nearest: {why}", style="dim") for why, number in reasons]
    float32_layers = list(stored.kept.items())
    lines += [
        Text(f"{name} is not quantized: {why}", style="dim")
        for name, why in float32_layers[:MOST_KEPT]
    ]
    if len(float32_layers) > MOST_KEPT:
        lines.append(
            Text(f"and {len(float32_layers) - MOST_KEPT} others are not quantized", style="dim")
        )
    if report.numerics.weights is not None:
        lines += [Text(), *_changed(report.numerics.weights, "the model's own weights")]
    return Group(*lines)


def _precision(report: Report, quantized: QuantizedReport) -> RenderableType:
    """Describe which layers are quantized, why the others are not, and the error of each output."""
    count = quantized.layers + quantized.bfloat16 + len(quantized.kept)
    beside = f", {quantized.bfloat16} bfloat16" if quantized.bfloat16 else ""
    lines: list[RenderableType] = [
        Text(
            f"{quantized.layers} of {count} matmuls and convolutions compute in "
            f"{quantized.form}{beside}"
        )
    ]
    effect = report.numerics.precision
    fallback = None if effect is None else effect.fallback
    groups = () if fallback is None else fallback.groups
    measured = {name for group in groups if group.kept for name in group.layers}
    others = (why for name, why in quantized.kept.items() if name not in measured)
    reasons = Counter(others).most_common(MOST_KEPT)
    lines += [Text(f"{number} stay float32: {why}", style="dim") for why, number in reasons]
    if fallback is not None and measured:
        share = "infinitely" if fallback.error is None else f"by {fallback.error:.2%}"
        why = f"{len(measured)} stay float32: with all of them quantized, an output changes {share}"
        lines.append(Text(why, style="dim"))
    if effect is not None:
        lines += [Text(), *_changed(effect, "the model in its own precision")]
    return Group(*lines)


def _caches(cache: WeightsReport) -> RenderableType:
    """Describe the type of the in-place KV cache, and the error of each output."""
    stored = Text(f"the KV cache is stored as {cache.form}")
    return Group(stored, Text(), *_changed(cache, "the model with a float32 KV cache"))


def _changed(weights: WeightsReport, against: str) -> list[RenderableType]:
    table = plain_table(
        "OUTPUT", "ERROR", "LARGEST ERROR", "COSINE", "SAME ARGMAX", "KL DIVERGENCE"
    )
    logits = weights.logits
    for one in sorted(weights.outputs, key=lambda one: (one is not logits, -(one.error or 0.0)))[
        :MOST_OUTPUTS
    ]:
        table.add_row(
            Name(one.name),
            "" if one.error is None else f"{one.error:.2%}",
            "" if one.max_abs is None else f"{one.max_abs:.2g}",
            "" if one.cosine is None else f"{one.cosine:.5f}",
            "" if one.argmax is None else f"{one.argmax:.1%}",
            "" if one.divergence is None else f"{one.divergence:.2g}",
        )
    limit = "" if weights.limit is None else f", at most {weights.limit:.2%} is allowed"
    return [FittingTable(table), Text(f"against {against}{limit}", style="dim")]


def _by_point(outputs: tuple[OutputReport, ...]) -> list[RenderableType]:
    """One row a point, one column an output: how much of the tolerance was used."""
    points = outputs[0].points
    if len(points) < 2:
        return []
    shown = sorted(outputs, key=_worst, reverse=True)[:MOST_OUTPUTS]
    table = plain_table("DIMS", *(escape(output.name) for output in shown))
    for index, point in enumerate(points):
        cells = [_used(output.points[index : index + 1]) for output in shown]
        table.add_row(_point(point.dims), *cells)
    rest = len(outputs) - len(shown)
    more = [Text(f"and {rest} outputs with smaller errors", style="dim")] if rest else []
    return [
        Text(),
        Text("Error in % of what is allowed", style="dim"),
        FittingTable(table),
        *more,
    ]


def _worst(output: OutputReport) -> float:
    return max((point.of_tolerance or 0.0 for point in output.points), default=0.0)


def _used(points: tuple[ComparedPoint, ...]) -> str:
    """The share of the tolerance at a point, empty if the output was not compared there."""
    part = points[0].of_tolerance if points else None
    if part is None:
        return escape(points[0].verdict) if points else ""
    return "exact" if part == 0 else f"{part:.2%}"


def _point(dims: dict[str, int]) -> str:
    return escape(point_text(dims))

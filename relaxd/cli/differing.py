"""`relaxd diff`: what two builds differ in, which is faster here, and whether that is too much."""

import dataclasses
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

import typer

from relaxd.cli import declarations as declare
from relaxd.cli.asking import asking
from relaxd.cli.bench import all_points, choices_of
from relaxd.cli.console import Exit, stderr, stdout
from relaxd.contract.bundle.diff import BuildDiff, LatencyChange, OutputChange
from relaxd.errors import DeclarationError, LoadContractError, suggest
from relaxd.reports.diff_formats import FORMATS, markdown
from relaxd.reports.differ import compare
from relaxd.reports.gates import Gate, judge_all

_REFERENCE = "A bundle's folder or tar, its digest, or the job that built it."

Base = Annotated[str, typer.Argument(metavar="BASE", help=_REFERENCE, show_default=False)]
Head = Annotated[str, typer.Argument(metavar="HEAD", help=_REFERENCE, show_default=False)]
FailIf = Annotated[
    list[str] | None,
    typer.Option(
        "--fail-if",
        metavar="CONDITION",
        help="End with exit code 4 if it holds: latency>5%, size>2%, cosine<0.999; repeatable.",
        show_default=False,
    ),
]
Format = Annotated[str, typer.Option("--format", help="text, md, json, junit or sarif.")]
AsJson = Annotated[
    bool, typer.Option("--json", help="Print JSON, as with --format json; errors, too.")
]
Points = Annotated[
    list[str] | None,
    typer.Option("--dim", metavar="NAME=SIZE,..", help="Values of a dim: batch=1,8."),
]
Seconds = Annotated[
    float, typer.Option("--seconds", min=0, help="Seconds of timing at each point; 0 skips it.")
]

OwnThreads = Annotated[
    int,
    typer.Option(
        "--threads",
        min=1,
        help="With 1, processor time is compared, which other processes do not affect.",
    ),
]


def diff_command(
    base: Base,
    head: Head,
    fail_if: FailIf = None,
    format: Format = "text",
    dim: Points = None,
    seconds: Seconds = 5.0,
    threads: OwnThreads = 1,
    target: declare.OneTarget = None,
    server: declare.Server = None,
    token: declare.Token = None,
    json: AsJson = False,
) -> None:
    """Compare BASE and HEAD: sizes, kernels, nodes, options, latency in turns, and outputs.

    Example: [bold]relaxd diff main.bundle out --fail-if 'latency>5%' --fail-if 'cosine<0.999'[/]
    """
    format = "json" if json else format
    if format not in ("text", *FORMATS):
        raise DeclarationError(
            f"unknown format {format!r}",
            field="format",
            hint=suggest(format, FORMATS, f"one of text, {', '.join(FORMATS)}"),
        )
    gates = [Gate.of(text) for text in fail_if or []]
    with ExitStack() as stack:
        folders = [_local(ref, stack, target, server, token) for ref in (base, head)]
        diff = _compared(folders, (base, head), dim, seconds, threads)
    diff = dataclasses.replace(diff, gates=judge_all(gates, diff))
    if format == "text":
        # It brings a parser that no other command needs.
        from rich.markdown import Markdown

        stdout().print(Markdown(markdown(diff)))
    else:
        sys.stdout.write(FORMATS[format](diff))
    if diff.not_run:
        stderr().print(f"neither is run: {diff.not_run}", markup=False)
    for gate in diff.gates:
        if gate.failed:
            stderr().print(f"[bold red]regression:[/] {gate.gate}: {gate.said}")
    if diff.failed:
        raise typer.Exit(Exit.REGRESSED)


def _local(
    ref: str, stack: ExitStack, target: str | None, server: str | None, token: str | None
) -> Path:
    if Path(ref).exists():
        return Path(ref)
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="relaxd-diff-")))
    with asking(ref, server, token) as client:
        return client.pull(ref, folder / "bundle", target)


def _compared(
    folders: list[Path], names: tuple[str, str], dim: list[str] | None, seconds: float, threads: int
) -> BuildDiff:
    from relaxd.loader.contest import CONFIDENCE, contest, output_changes
    from relaxd.loader.opening import load_library
    from relaxd.loader.report import report_of
    from relaxd.loader.samples import dim_values, draw

    reports = [report_of(folder) for folder in folders]
    diff = compare(reports[0], reports[1], names)
    try:
        base, head = (load_library(folder, threads=threads) for folder in folders)
    except LoadContractError as error:
        return dataclasses.replace(diff, not_run=str(error))
    # With one thread, processor time: it excludes what other processes take.
    clock = time.thread_time if threads == 1 else time.perf_counter
    latency: list[LatencyChange] = []
    outputs: list[OutputChange] = []
    for chosen in all_points(choices_of(dim)):
        point = dim_values(base.dims, chosen)
        inputs = draw(base.inputs, point, 0, base.manifest.state)
        outputs += output_changes(base.run(inputs), head.run(inputs), point)
        if seconds:
            latency.append(
                contest(
                    lambda arrays=inputs: base.run(arrays),  # type: ignore[misc]
                    lambda arrays=inputs: head.run(arrays),  # type: ignore[misc]
                    point,
                    seconds,
                    clock,
                )
            )
    return dataclasses.replace(
        diff, latency=tuple(latency), outputs=tuple(outputs), confidence=CONFIDENCE
    )

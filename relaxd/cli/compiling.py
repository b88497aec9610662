"""`relaxd compile`: in this process's own compiler, or on a service."""

import json as json_format
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape
from rich.text import Text

from relaxd.cli import declarations as declare
from relaxd.cli.command import Json
from relaxd.cli.console import (
    Exit,
    error_document,
    exit_code,
    print_json,
    render_error,
    stderr,
    stdout,
)
from relaxd.cli.following import follow
from relaxd.cli.progress import BuildProgress, transfer
from relaxd.cli.views import size, status_mark, warning_lines
from relaxd.client import Client, JobHandle, extras
from relaxd.client.compiling import digest_here
from relaxd.client.errors import JobFailed, PullError, WaitTimeout
from relaxd.client.folder import clear_folder, replacing
from relaxd.client.job import failure_of, reproducer_of
from relaxd.contract.bundle import numerics, profile
from relaxd.contract.bundle.numerics import Numerics
from relaxd.contract.bundle.profile import Profile
from relaxd.contract.bundle.report import NumericsReport
from relaxd.contract.model_folder import require_model
from relaxd.contract.request import CompileRequest
from relaxd.contract.states import State
from relaxd.contract.typed import read_typed
from relaxd.contract.urgency import Urgency
from relaxd.errors import DeclarationError, RelaxdError, UnverifiedError
from relaxd.reports import sentences

Output = Annotated[
    Path,
    typer.Option(
        "--output",
        "-o",
        metavar="DIR",
        help="Where the bundle goes; DIR/TARGET with several targets.",
    ),
]
Samples = Annotated[
    Path | None,
    typer.Option(
        "--samples",
        metavar="NPZ",
        help="Inputs for verify, profile and calibration.",
        show_default=False,
    ),
]
Dump = Annotated[
    Path | None,
    typer.Option(
        "--dump",
        metavar="DIR",
        help="Keep the module after every phase; DIR/TARGET with several targets.",
        show_default=False,
    ),
]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Show what the compiler prints.")]
Detach = Annotated[
    bool, typer.Option("--detach", help="With a server: print the job and do not wait for it.")
]
WaitForWorker = Annotated[
    bool,
    typer.Option(
        "--wait-for-worker",
        help="With a server: submit even if no running worker compiles for a target.",
    ),
]
Timeout = Annotated[
    float | None,
    typer.Option(
        "--timeout",
        metavar="SECONDS",
        min=0,
        help="With a server: how long to wait for the builds; the job continues afterwards.",
        show_default=False,
    ),
]
RequireVerified = Annotated[
    bool,
    typer.Option(
        "--require-verified",
        help="Fail unless every bundle was run and agreed with the reference.",
    ),
]


@dataclass(frozen=True)
class Result:
    """The outcome of one target: an error, or a bundle of `size` bytes in `output` with the
    `report` of its verification and one line on its speed and error.
    """

    target: str
    output: Path | None = None
    size: int = 0
    digest: str | None = None
    report: Numerics = field(default_factory=Numerics)
    summary: str = ""
    error: RelaxdError | None = None

    def to_json(self) -> dict[str, Any]:
        """For `--json`."""
        if self.error:
            return {"target": self.target, "error": error_document(self.error)}
        return {
            "target": self.target,
            "output": str(self.output),
            "size": self.size,
            "digest": self.digest,
            "status": self.report.status,
            "verdict": self.report.verdict,
            "warnings": list(self.report.warnings),
            "summary": self.summary,
        }


def compile_command(
    model: declare.ModelPath,
    dim: declare.Dims = None,
    input: declare.Inputs = None,
    const: declare.Consts = None,
    shape: declare.Shapes = None,
    operators: declare.CustomOperators = None,
    option: declare.Options = None,
    flavour: declare.Flavours = None,
    weights: declare.Weights = None,
    weights_error: declare.WeightsError = None,
    precision: declare.PrecisionOption = None,
    precision_error: declare.PrecisionError = None,
    precision_over: declare.PrecisionOverOption = None,
    grid: declare.Grid = None,
    target: declare.Targets = None,
    samples: Samples = None,
    output: Output = Path("out"),
    dump: Dump = None,
    require_verified: RequireVerified = False,
    project: declare.Project = "",
    priority: declare.Priority = 0,
    deadline: declare.Deadline = None,
    server: declare.Server = None,
    token: declare.Token = None,
    detach: Detach = False,
    wait_for_worker: WaitForWorker = False,
    timeout: Timeout = None,
    verbose: Verbose = False,
    json: Json = False,
) -> None:
    """Compile MODEL into a bundle per target.

    Without a server URL the compiler runs here.

    Example: [bold]relaxd compile m.onnx --dim batch=1:64 --dim seq=1:512 -o out[/]
    """
    request = declare.read_request(
        dims=dim,
        inputs=input,
        consts=const,
        shapes=shape,
        options=option,
        flavour=flavour,
        weights=weights,
        weights_error=weights_error,
        precision=precision,
        precision_error=precision_error,
        precision_over=precision_over,
        targets=target,
        grid=grid,
        operators=operators,
    )
    urgency = Urgency.of(priority, deadline)
    if detach and require_verified:
        raise DeclarationError(
            "--require-verified cannot be kept with --detach",
            field="require_verified",
            hint="leave out --detach, so that the command sees how the builds end",
        )
    require_model(model)
    if samples is not None and not samples.is_file():
        raise DeclarationError(
            f"there is no file {samples}", field="samples", hint="give the path of a file"
        )
    if dump:
        request = replace(request, options=replace(request.options, dump=True))
    dump_folder = dump if dump or not request.options.dump else _beside(output, "dump")
    delivery = _Delivery(output, dump_folder, require_verified)
    if server is None:
        if detach:
            raise DeclarationError(
                "--detach needs a server",
                field="server",
                hint="give --server URL or set RELAXD_SERVER",
            )
        _compile_here(model, request, samples, delivery, verbose=verbose, as_json=json)
        return
    with Client(server, token=token) as client:
        with transfer(f"uploading {model.name}") as moved:
            job = client.submit(
                model,
                request,
                samples=samples,
                wait_for_worker=wait_for_worker,
                project=project,
                urgency=urgency,
                on_upload=moved,
            )
        if not detach:
            results = _delivered(job, delivery, verbose, timeout)
            _report(results, job.document, as_json=json)
        elif json:
            print_json(job.document)
        else:
            typer.echo(job.id)


def _delivered(
    job: JobHandle, delivery: "_Delivery", verbose: bool, timeout: float | None
) -> list[Result]:
    """The outcome of every target, each pulled as soon as its build has ended; where the time is
    up, that is the outcome of the rest.
    """
    results: dict[str, Result] = {}

    def take(target: str) -> None:
        results[target] = _pulled(job, job.refresh().build(target), delivery)

    try:
        follow(job, verbose=verbose, timeout=timeout, on_finished=take)
    except WaitTimeout as error:
        late = {b["target"]: Result(b["target"], error=error) for b in job.refresh().builds}
        return list({**late, **results}.values())
    except KeyboardInterrupt:
        stderr().print(
            f"the job continues: [bold]relaxd jobs follow {job.id}[/] shows it, "
            f"[bold]relaxd jobs cancel {job.id}[/] stops it"
        )
        raise
    for build in job.builds:
        if build["target"] not in results:
            take(build["target"])
    return [results[build["target"]] for build in job.builds]


def _pulled(job: JobHandle, build: dict[str, Any], delivery: "_Delivery") -> Result:
    target = build["target"]
    output, dump = delivery.of(target, len(job.builds))
    if not build["artifact"]:
        return Result(target, error=_failure(job, build, _beside(output, "reproducer")))
    report = Numerics.from_json(build.get("numerics"))
    try:
        delivery.admit(report)
    except UnverifiedError as error:
        return Result(target, error=error)
    job.pull(target, output)
    if dump:
        job.pull_dump(target, dump)
    artifact = build["artifact"]
    summary = _summary(build.get("profile"), build.get("numerics"))
    return Result(target, output, artifact["size"], artifact["digest"], report, summary)


def _failure(job: JobHandle, build: dict[str, Any], reproducer: Path) -> JobFailed:
    """The build's error, whose reproducer is in the folder, unless something else is."""
    error = failure_of(build)
    if not reproducer_of(build):
        return error
    try:
        job.pull_reproducer(build["target"], reproducer)
    except PullError:
        return error
    details = {**error.failure["details"], "reproducer": str(reproducer)}
    return JobFailed(error.message, failure={**error.failure, "details": details}, hint=error.hint)


@dataclass(frozen=True)
class _Delivery:
    """The folders that receive bundles and, if they are kept, dumps, and whether a bundle must be
    verified to get there.
    """

    output: Path
    dump: Path | None
    require_verified: bool

    def of(self, target: str, count: int) -> tuple[Path, Path | None]:
        """The folders of one of `count` targets."""
        if count == 1:
            return self.output, self.dump
        return self.output / target, self.dump / target if self.dump else None

    def admit(self, report: Numerics) -> None:
        """Raises UnverifiedError for a bundle that lacks a verification that is required."""
        lacking = report.lacking
        if self.require_verified and lacking:
            raise UnverifiedError(
                f"the build is not verified: {lacking}",
                hint="compile where the library can be run, with the option verify=true",
                status=report.status,
                verdict=report.verdict,
            )


def _beside(output: Path, what: str) -> Path:
    return output.with_name(f"{output.name}.{what}")


def _compile_here(
    model: Path,
    request: CompileRequest,
    samples: Path | None,
    delivery: _Delivery,
    *,
    verbose: bool,
    as_json: bool,
) -> None:
    results: list[Result] = []
    zygote = extras.load("compiler.isolation.zygote", extra="compiler")
    # It imports the compiler, which takes a second or two, while this process prepares the rest.
    with zygote.keep_zygote(start=True):
        registry = extras.load("compiler.targets", extra="compiler")
        for target in request.targets:
            registry.resolve(target)
        with BuildProgress(list(request.targets)) as progress:
            for target in request.targets:
                results.append(_build(model, request, target, samples, delivery, progress, verbose))
    _report(results, {}, as_json=as_json)


def _build(
    model: Path,
    request: CompileRequest,
    target: str,
    samples: Path | None,
    delivery: _Delivery,
    progress: BuildProgress,
    verbose: bool,
) -> Result:
    api = extras.load("compiler.api", extra="compiler")
    output, dump = delivery.of(target, len(request.targets))
    try:
        with replacing(output) as fresh:
            manifest = api.compile_request(
                model,
                request,
                output=fresh,
                target=target,
                samples=samples,
                dump=clear_folder(dump) if dump else None,
                reproducer=_beside(output, "reproducer"),
                on_event=lambda event: _show(event.to_json(), target, progress, verbose),
            )
            report = Numerics.from_json(document := _document(fresh / numerics.FILENAME))
            delivery.admit(report)
            summary = _summary(_document(fresh / profile.FILENAME), document)
            digest = digest_here(fresh, target, manifest)
    except RelaxdError as error:
        progress.end(target, State.FAILED)
        return Result(target, error=error)
    progress.end(target, State.SUCCEEDED)
    size = sum(entry.size for entry in manifest.files.values())
    return Result(target, output, size, digest, report, summary)


def _document(file: Path) -> Any:
    """The JSON in a bundle's file; None without one."""
    return json_format.loads(file.read_bytes()) if file.exists() else None


def _summary(profile_document: Any, numerics_document: Any) -> str:
    return sentences.summary(
        Profile.from_json(profile_document or {}),
        read_typed(NumericsReport, numerics_document or {}, numerics.FILENAME),
    )


def _show(event: dict[str, Any], target: str, progress: BuildProgress, verbose: bool) -> None:
    match event:
        case {"kind": "stage" | "progress"}:
            progress.show_step(target, event)
        case {"kind": "log", "line": line} if verbose:
            progress.log(line)


def _report(results: list[Result], document: dict[str, Any], *, as_json: bool) -> None:
    """Print the outcomes, to `document` if that is wanted; exits with the code of the targets that
    failed, with FAILED if they differ.
    """
    if as_json:
        print_json({**document, "results": [result.to_json() for result in results]})
    for result in [] if as_json else results:
        if result.error:
            stderr().print(render_error(result.error, result.target))
        else:
            _print_bundle(result)
    codes = {exit_code(result.error) for result in results if result.error}
    if codes:
        raise typer.Exit(codes.pop() if len(codes) == 1 else Exit.FAILED)


def _print_bundle(result: Result) -> None:
    """The target's line with its status; under it the warnings of its verification, the digest,
    and its speed and error.
    """
    status, reason = status_mark(result.report.status), result.report.reason
    how = f", {status}" + (f": {escape(reason)}" if reason else "") if status else ""
    where = escape(str(result.output))
    stdout().print(f"[green]{result.target}[/]: {where} ({size(result.size)}){how}")
    for line in warning_lines(result.report):
        stdout().print(Text.assemble("  ", line))
    if result.digest:
        stdout().print(f"  {result.digest}", soft_wrap=True)
    if result.summary:
        stdout().print(f"  {escape(result.summary)}", soft_wrap=True)

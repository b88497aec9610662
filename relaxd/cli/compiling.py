"""`relaxd compile`: in this process's own compiler, or on a service."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import typer

from relaxd.cli import declarations as declare
from relaxd.cli import extras
from relaxd.cli.command import Json
from relaxd.cli.console import Exit, error_document, print_json, render_error, stderr, stdout
from relaxd.cli.following import follow
from relaxd.cli.progress import BuildProgress
from relaxd.cli.views import size
from relaxd.client import Client, JobHandle
from relaxd.client.folder import emptied, replacing
from relaxd.client.job import failure_of
from relaxd.contract.request import CompileRequest
from relaxd.contract.states import State
from relaxd.errors import DeclarationError, RelaxdError

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
        "--samples", metavar="NPZ", help="Inputs for verify and profile.", show_default=False
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


@dataclass(frozen=True)
class Result:
    """The outcome of one target: a bundle of `size` bytes in `output`, or an error."""

    target: str
    output: Path | None = None
    size: int = 0
    error: RelaxdError | None = None

    def to_json(self) -> dict[str, Any]:
        """For `--json`."""
        if self.error:
            return {"target": self.target, "error": error_document(self.error)}
        return {"target": self.target, "output": str(self.output), "size": self.size}


def compile_command(
    model: declare.ModelPath,
    dim: declare.Dims = None,
    input: declare.Inputs = None,
    const: declare.Consts = None,
    shape: declare.Shapes = None,
    option: declare.Options = None,
    target: declare.Targets = None,
    samples: Samples = None,
    output: Output = Path("out"),
    dump: Dump = None,
    server: declare.Server = None,
    token: declare.Token = None,
    detach: Detach = False,
    verbose: Verbose = False,
    json: Json = False,
) -> None:
    """Compile MODEL into a bundle per target.

    Without a server URL the compiler runs here. Example: [bold]relaxd compile m.onnx --dim
    batch=1:64 --dim seq=1:512 -o out[/]
    """
    request = declare.read_request(
        dims=dim, inputs=input, consts=const, shapes=shape, options=option, targets=target
    )
    for path, field in ((model, "model"), (samples, "samples")):
        if path is not None and not path.is_file():
            raise DeclarationError(
                f"there is no file {path}", field=field, hint="give the path of a file"
            )
    if dump:
        request = replace(request, options=replace(request.options, dump=True))
    places = _Places(output, dump if dump or not request.options.dump else _beside(output))
    if server is None:
        if detach:
            raise DeclarationError(
                "--detach needs a server",
                field="server",
                hint="give --server URL or set RELAXD_SERVER",
            )
        _compile_here(model, request, samples, places, verbose=verbose, as_json=json)
        return
    with Client(server, token=token) as client:
        job = client.submit(model, request, samples=samples)
        if not detach:
            _finish(_watched(job, verbose), places, as_json=json)
        elif json:
            print_json(job.document)
        else:
            typer.echo(job.id)


def _watched(job: JobHandle, verbose: bool) -> JobHandle:
    try:
        return follow(job, verbose=verbose)
    except KeyboardInterrupt:
        stderr().print(
            f"the job goes on: [bold]relaxd jobs show {job.id}[/], or stop it with [bold]relaxd "
            f"jobs cancel {job.id}[/]"
        )
        raise


def _finish(job: JobHandle, places: "_Places", *, as_json: bool) -> None:
    results: list[Result] = []
    for build in job.builds:
        place, dump = places.of(build["target"], len(job.builds))
        if build["artifact"]:
            job.pull(build["target"], place)
            if dump:
                job.pull_dump(build["target"], dump)
            results.append(Result(build["target"], place, build["artifact"]["size"]))
        else:
            results.append(Result(build["target"], error=failure_of(build)))
    _report(results, job.document, as_json=as_json)


@dataclass(frozen=True)
class _Places:
    """The folders that receive bundles and, if they are kept, dumps."""

    output: Path
    dump: Path | None

    def of(self, target: str, count: int) -> tuple[Path, Path | None]:
        """The folders of one of `count` targets."""
        if count == 1:
            return self.output, self.dump
        return self.output / target, self.dump / target if self.dump else None


def _beside(output: Path) -> Path:
    return output.with_name(f"{output.name}.dump")


def _compile_here(
    model: Path,
    request: CompileRequest,
    samples: Path | None,
    places: _Places,
    *,
    verbose: bool,
    as_json: bool,
) -> None:
    registry = extras.load("compiler.targets", extra="compiler")
    for target in request.targets:
        registry.resolve(target)
    results: list[Result] = []
    with BuildProgress(list(request.targets)) as progress:
        for target in request.targets:
            place, dump = places.of(target, len(request.targets))
            results.append(_build(model, request, target, samples, place, dump, progress, verbose))
    _report(results, {}, as_json=as_json)


def _build(
    model: Path,
    request: CompileRequest,
    target: str,
    samples: Path | None,
    place: Path,
    dump: Path | None,
    progress: BuildProgress,
    verbose: bool,
) -> Result:
    api = extras.load("compiler.api", extra="compiler")
    try:
        with replacing(place) as fresh:
            manifest = api.compile_request(
                model,
                request,
                output=fresh,
                target=target,
                samples=samples,
                dump=emptied(dump) if dump else None,
                on_event=lambda event: _show(event.to_json(), target, progress, verbose),
            )
    except RelaxdError as error:
        progress.end(target, State.FAILED)
        return Result(target, error=error)
    progress.end(target, State.SUCCEEDED)
    return Result(target, place, sum(entry.size for entry in manifest.files.values()))


def _show(event: dict[str, Any], target: str, progress: BuildProgress, verbose: bool) -> None:
    match event:
        case {"kind": "stage", "stage": stage}:
            progress.say(target, stage)
        case {"kind": "progress", "stage": stage, "message": message}:
            progress.say(target, f"{stage}: {message}")
        case {"kind": "log", "line": line} if verbose:
            progress.log(line)


def _report(results: list[Result], document: dict[str, Any], *, as_json: bool) -> None:
    """Print the outcomes, to `document` if that is wanted; exits with FAILED if any target
    failed.
    """
    if as_json:
        print_json({**document, "results": [result.to_json() for result in results]})
    for result in [] if as_json else results:
        if result.error:
            stderr().print(render_error(result.error, result.target))
        else:
            stdout().print(f"[green]{result.target}[/]: {result.output} ({size(result.size)})")
    if any(result.error for result in results):
        raise typer.Exit(Exit.FAILED)

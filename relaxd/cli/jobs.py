"""`relaxd jobs`: list, show, follow, logs, cancel."""

from typing import Annotated

import typer
from rich.markup import escape
from rich.text import Text

from relaxd.cli import declarations as declare
from relaxd.cli.command import Command, Json
from relaxd.cli.console import Exit, print_json, render_error, stdout
from relaxd.cli.following import follow
from relaxd.cli.views import builds_table, digest_lines, jobs_table, urgency_line, warning_lines
from relaxd.client import Client, JobHandle
from relaxd.client.job import failure_of
from relaxd.contract.bundle.numerics import Numerics
from relaxd.contract.states import State

app = typer.Typer(no_args_is_help=True, help="List, show, follow and cancel the jobs of a service.")

JobId = Annotated[str, typer.Argument(help="The job's id.", show_default=False)]
Limit = Annotated[
    int, typer.Option("--limit", min=1, max=1000, help="The largest number of jobs to list.")
]
OfState = Annotated[
    State | None, typer.Option("--state", help="Only jobs in this state.", show_default=False)
]
OfTarget = Annotated[
    str | None,
    typer.Option(
        "--target", metavar="TARGET", help="Only the build for this target.", show_default=False
    ),
]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Show what the compiler prints.")]
Timeout = Annotated[
    float | None,
    typer.Option("--timeout", min=0, help="Seconds to wait at most.", show_default=False),
]


@app.command("list", cls=Command)
def list_command(
    limit: Limit = 20,
    state: OfState = None,
    server: declare.Server = None,
    token: declare.Token = None,
    json: Json = False,
) -> None:
    """List the latest jobs, newest first."""
    with Client(server or None, token=token) as client:
        jobs = [job.document for job in client.jobs(limit, state.value if state else None)]
    if json:
        print_json({"jobs": jobs})
    elif jobs:
        stdout().print(jobs_table(jobs))
    else:
        stdout().print("no jobs")


@app.command("show", cls=Command)
def show_command(
    job: JobId, server: declare.Server = None, token: declare.Token = None, json: Json = False
) -> None:
    """Show a job and its builds."""
    with Client(server or None, token=token) as client:
        _show(client.job(job), json)


@app.command("follow", cls=Command)
def follow_command(
    job: JobId,
    verbose: Verbose = False,
    timeout: Timeout = None,
    server: declare.Server = None,
    token: declare.Token = None,
    json: Json = False,
) -> None:
    """Show a job's progress until it ends, then the job; exits with 1 unless it succeeded."""
    with Client(server or None, token=token) as client:
        ended = follow(client.job(job), verbose=verbose, timeout=timeout)
        _show(ended, json)
    if ended.state is not State.SUCCEEDED:
        raise typer.Exit(Exit.FAILED)


@app.command("logs", cls=Command)
def logs_command(
    job: JobId,
    target: OfTarget = None,
    server: declare.Server = None,
    token: declare.Token = None,
    json: Json = False,
) -> None:
    """Print what the compiler printed."""
    with Client(server or None, token=token) as client:
        text = client.job(job).logs(target)
    if json:
        print_json({"job": job, "target": target, "lines": text.splitlines()})
    else:
        typer.echo(text, nl=False)


@app.command("cancel", cls=Command)
def cancel_command(
    job: JobId, server: declare.Server = None, token: declare.Token = None, json: Json = False
) -> None:
    """Stop a job; one that has ended stays as it is."""
    with Client(server or None, token=token) as client:
        _show(client.job(job).cancel(), json)


def _show(job: JobHandle, as_json: bool) -> None:
    if as_json:
        print_json(job.document)
        return
    console = stdout()
    console.print(jobs_table([job.document]), "", builds_table(job.builds))
    if urgency := urgency_line(job.document):
        console.print("", urgency, sep="\n")
    if digests := digest_lines(job.builds):
        console.print("", *map(escape, digests), sep="\n", soft_wrap=True)
    for build in job.builds:
        if build["error"]:
            console.print("", render_error(failure_of(build), build["target"]))
        elif build.get("note"):
            console.print("", f"[bold]{build['target']}[/]: {build['note']}")
        lines = warning_lines(Numerics.from_json(build.get("numerics")))
        about = [Text.assemble((build["target"], "bold"), ": ", line) for line in lines]
        if about:
            console.print("", *about, sep="\n")

"""The commands and their order in the help."""

from importlib.metadata import PackageNotFoundError, version
from typing import Annotated

import typer

from relaxd.cli import (
    access,
    bench,
    checking,
    compiling,
    differing,
    estimating,
    evaluating,
    families,
    inspecting,
    jobs,
    llm,
    models,
    optimizing,
    pulling,
    releasing,
    run,
    serving,
    showing,
    storing,
    targets,
    verifying,
    webhooks,
    why,
)
from relaxd.cli.command import Command

app = typer.Typer(
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    help="Compile dynamic-shape models once per target, and run them anywhere.",
    epilog="Exit codes: 0 done, 1 the compile failed, 2 bad request or usage, 3 the server could "
    "not be reached, 4 a comparison found a regression.",
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _show_version(wanted: bool) -> None:
    if not wanted:
        return
    try:
        typer.echo(f"relaxd {version('relaxd')}")
    except PackageNotFoundError:
        typer.echo("relaxd (from a checkout, not installed)")
    raise typer.Exit


@app.callback()
def relaxd(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version."),
    ] = False,
) -> None:
    """Compile dynamic-shape models once per target, and run them anywhere."""


app.command("compile", cls=Command, rich_help_panel="Build")(compiling.compile_command)
app.command("inspect", cls=Command, rich_help_panel="Build")(inspecting.inspect_command)
app.command("families", cls=Command, rich_help_panel="Build")(families.families_command)
app.command("opt", cls=Command, rich_help_panel="Build")(optimizing.opt_command)
app.command("ci", cls=Command, rich_help_panel="Build")(checking.ci_command)
app.command("targets", cls=Command, rich_help_panel="Build")(targets.targets_command)
app.command("pull", cls=Command, rich_help_panel="Use")(pulling.pull_command)
app.command("run", cls=Command, rich_help_panel="Use")(run.run)
app.command("llm", cls=Command, rich_help_panel="Use")(llm.llm_command)
app.command("show", cls=Command, rich_help_panel="Use")(showing.show_command)
app.command("diff", cls=Command, rich_help_panel="Use")(differing.diff_command)
app.command("estimate", cls=Command, rich_help_panel="Use")(estimating.estimate_command)
app.command("bench", cls=Command, rich_help_panel="Use")(bench.bench)
app.command("accuracy", cls=Command, rich_help_panel="Use")(evaluating.accuracy_command)
app.command("verify", cls=Command, rich_help_panel="Use")(verifying.verify_command)
app.command("release", cls=Command, rich_help_panel="Use")(releasing.release_command)
app.command("why", cls=Command, rich_help_panel="Use")(why.why_command)
app.add_typer(jobs.app, name="jobs", rich_help_panel="Service")
app.add_typer(models.app, name="models", rich_help_panel="Service")
app.add_typer(webhooks.app, name="webhook", rich_help_panel="Service")
app.command("gc", cls=Command, rich_help_panel="Service")(storing.gc_command)
app.command("check", cls=Command, rich_help_panel="Service")(storing.check_command)
app.command("backup", cls=Command, rich_help_panel="Service")(storing.backup_command)
app.command("restore", cls=Command, rich_help_panel="Service")(storing.restore_command)
app.command("pin", cls=Command, rich_help_panel="Service")(storing.pin_command)
app.add_typer(access.tokens, name="token", rich_help_panel="Service")
app.add_typer(access.tenants, name="tenant", rich_help_panel="Service")
app.command("audit", cls=Command, rich_help_panel="Service")(access.audit_command)
app.command("serve", cls=Command, rich_help_panel="Service")(serving.serve_command)
app.command("api", cls=Command, rich_help_panel="Service")(serving.api_command)
app.command("worker", cls=Command, rich_help_panel="Service")(serving.worker_command)

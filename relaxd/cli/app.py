"""The commands and their order in the help. Only the module of the command that is called is
imported, as others take longer than many a command itself.
"""

from importlib import import_module
from typing import Annotated, Any

import typer

from relaxd.cli.command import Command

app: typer.Typer
"""All commands; made when it is first asked for."""

_COMMANDS = (
    ("compile", "compiling", "compile_command", "Build"),
    ("inspect", "inspecting", "inspect_command", "Build"),
    ("export", "exporting", "export_command", "Build"),
    ("families", "families", "families_command", "Build"),
    ("opt", "optimizing", "opt_command", "Build"),
    ("ci", "checking", "ci_command", "Build"),
    ("targets", "targets", "targets_command", "Build"),
    ("pull", "pulling", "pull_command", "Use"),
    ("run", "run", "run", "Use"),
    ("llm", "llm", "llm_command", "Use"),
    ("show", "showing", "show_command", "Use"),
    ("diff", "differing", "diff_command", "Use"),
    ("estimate", "estimating", "estimate_command", "Use"),
    ("bench", "bench", "bench", "Use"),
    ("package", "packaging", "package_command", "Use"),
    ("accuracy", "evaluating", "accuracy_command", "Use"),
    ("verify", "verifying", "verify_command", "Use"),
    ("release", "releasing", "release_command", "Use"),
    ("why", "why", "why_command", "Use"),
    ("jobs", "jobs", "app", "Service"),
    ("models", "models", "app", "Service"),
    ("webhook", "webhooks", "app", "Service"),
    ("gc", "storing", "gc_command", "Service"),
    ("check", "storing", "check_command", "Service"),
    ("backup", "storing", "backup_command", "Service"),
    ("restore", "storing", "restore_command", "Service"),
    ("pin", "storing", "pin_command", "Service"),
    ("token", "access", "tokens", "Service"),
    ("tenant", "access", "tenants", "Service"),
    ("audit", "access", "audit_command", "Service"),
    ("usage", "usage", "usage_command", "Service"),
    ("serve", "serving", "serve_command", "Service"),
    ("api", "serving", "api_command", "Service"),
    ("worker", "serving", "worker_command", "Service"),
)
"""Name, module, the function or the group of commands, and the panel of the help."""


def __getattr__(name: str) -> Any:
    """`app`."""
    if name != "app":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = build_app()
    return globals()[name]


def build_app(word: str | None = None) -> typer.Typer:
    """The application with the one command that `word` names, with all where it names none."""
    app = typer.Typer(
        no_args_is_help=True,
        add_completion=True,
        pretty_exceptions_enable=False,
        rich_markup_mode="rich",
        help="Compile dynamic-shape models once per target, and run them anywhere.",
        epilog="Exit codes: 0 done, 1 the compile failed, 2 bad request or usage, 3 the server "
        "could not be reached, 4 a comparison found a regression.",
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(relaxd)
    chosen = [row for row in _COMMANDS if row[0] == word]
    for name, module, attribute, panel in chosen or _COMMANDS:
        command: Any = getattr(import_module(f"relaxd.cli.{module}"), attribute)
        if isinstance(command, typer.Typer):
            app.add_typer(command, name=name, rich_help_panel=panel)
        else:
            app.command(name, cls=Command, rich_help_panel=panel)(command)
    return app


def _show_version(wanted: bool) -> None:
    if not wanted:
        return
    from importlib.metadata import PackageNotFoundError, version

    try:
        typer.echo(f"relaxd {version('relaxd')}")
    except PackageNotFoundError:
        typer.echo("relaxd (from a checkout, not installed)")
    raise typer.Exit


def relaxd(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version."),
    ] = False,
) -> None:
    """Compile dynamic-shape models once per target, and run them anywhere."""

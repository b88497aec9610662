"""`relaxd models`: names of models on a service, their versions, and aliases that move."""

from typing import Annotated, Any

import typer
from rich.markup import escape

from relaxd.cli import declarations as declare
from relaxd.cli.command import Command, Json
from relaxd.cli.console import print_json, stdout
from relaxd.cli.views import plain_table
from relaxd.client import Client
from relaxd.errors import DeclarationError

app = typer.Typer(
    no_args_is_help=True, help="Give builds names and versions, and move aliases between versions."
)

Name = Annotated[
    str, typer.Argument(metavar="NAME", help="The name of the model.", show_default=False)
]
Labels = Annotated[
    list[str] | None,
    typer.Option("--label", metavar="KEY=VALUE", help="A label; repeatable.", show_default=False),
]
Notes = Annotated[
    str | None,
    typer.Option(
        "--notes", metavar="TEXT", help="Notes on the version or model.", show_default=False
    ),
]
Project = Annotated[
    str | None,
    typer.Option("--project", metavar="NAME", help="The project of the model.", show_default=False),
]


def _read_labels(texts: list[str] | None) -> dict[str, str]:
    labels = {}
    for text in texts or []:
        key, equals, value = text.partition("=")
        if not key or not equals:
            raise DeclarationError(
                f"cannot read --label {text!r}", field="label", hint="as in --label team=vision"
            )
        labels[key] = value
    return labels


@app.command("list", cls=Command)
def list_models(
    project: Project = None,
    label: Labels = None,
    server: declare.Server = None,
    token: declare.Token = None,
    json: Json = False,
) -> None:
    """List names with their newest version and aliases."""
    with Client(server or None, token=token) as client:
        models = client.list_registered(project=project, labels=_read_labels(label))
    if json:
        print_json({"models": models})
        return
    table = plain_table("NAME", "PROJECT", "LATEST", "ALIASES", "LABELS")
    for model in models:
        table.add_row(
            model["name"],
            model["project"],
            str(model["last_version"]),
            _alias_text(model),
            escape(_label_text(model["labels"])),
        )
    stdout().print(table if models else "no models are registered")


@app.command("show", cls=Command)
def show_model(
    name: Name,
    server: declare.Server = None,
    token: declare.Token = None,
    json: Json = False,
) -> None:
    """List the versions of NAME, the newest first."""
    with Client(server or None, token=token) as client:
        model = client.get_registered(name)
    if json:
        print_json(model)
        return
    facts = [model["project"], _label_text(model["labels"]), model["notes"]]
    stdout().print(f"[bold]{name}[/] {escape('; '.join(filter(None, facts)))}")
    table = plain_table("VERSION", "ALIASES", "BY", "CREATED", "DIGEST", "NOTES")
    for version in model["versions"]:
        named = [one["alias"] for one in model["aliases"] if one["version"] == version["version"]]
        notes = "; ".join(filter(None, [_label_text(version["labels"]), version["notes"]]))
        table.add_row(
            str(version["version"]),
            ", ".join(named),
            escape(version["submitter"]),
            version["created_at"][:19],
            version["digest"][:19],
            escape(notes),
        )
    stdout().print(table)


@app.command("register", cls=Command)
def register(
    name: Name,
    job: Annotated[
        str | None,
        typer.Option(
            "--job",
            metavar="JOB",
            help="Register the bundles that this job built.",
            show_default=False,
        ),
    ] = None,
    digest: Annotated[
        str | None,
        typer.Option(
            "--digest",
            metavar="sha256:...",
            help="Register this bundle or index.",
            show_default=False,
        ),
    ] = None,
    label: Labels = None,
    notes: Notes = None,
    server: declare.Server = None,
    token: declare.Token = None,
    json: Json = False,
) -> None:
    """Make the next version of NAME; its bundles stay in the store.

    Example: [bold]relaxd models register minilm --job 4f2a... --label commit=1d0f[/]
    """
    if (job is None) == (digest is None):
        raise DeclarationError(
            "give a job or a digest", field="job", hint="as in --job JOB, or --digest sha256:..."
        )
    with Client(server or None, token=token) as client:
        version = client.register(
            name, job=job, digest=digest, labels=_read_labels(label), notes=notes or ""
        )
    if json:
        print_json(version)
    else:
        stdout().print(f"{name}@{version['version']}: {version['digest']}", soft_wrap=True)


@app.command("alias", cls=Command)
def alias_command(
    name: Name,
    alias: Annotated[
        str, typer.Argument(metavar="ALIAS", help="The alias, such as prod.", show_default=False)
    ],
    version: Annotated[
        str | None,
        typer.Argument(
            metavar="VERSION", help="A number, another alias or latest.", show_default=False
        ),
    ] = None,
    remove: Annotated[bool, typer.Option("--remove", help="Remove the alias.")] = False,
    server: declare.Server = None,
    token: declare.Token = None,
    json: Json = False,
) -> None:
    """Point ALIAS of NAME at VERSION; the audit log has every move.

    Example: [bold]relaxd models alias minilm prod 3[/]
    """
    if remove == (version is not None):
        raise DeclarationError(
            "give a version, or --remove", field="version", hint="as in minilm prod 3"
        )
    with Client(server or None, token=token) as client:
        if version is None:
            client.remove_alias(name, alias)
            moved: dict[str, Any] = {"removed": {"name": name, "alias": alias}}
        else:
            moved = client.move_alias(name, alias, version)
    if json:
        print_json(moved)
    if json or version is None:
        return
    before = "" if moved["previous"] is None else f" (was {moved['previous']})"
    stdout().print(f"{name}@{alias} is version {moved['version']}{before}")


@app.command("describe", cls=Command)
def describe_model(
    name: Name,
    project: Project = None,
    label: Labels = None,
    notes: Notes = None,
    server: declare.Server = None,
    token: declare.Token = None,
    json: Json = False,
) -> None:
    """Set the project, the labels (all of them) or the notes of NAME."""
    changes: dict[str, Any] = {"project": project, "notes": notes}
    changes["labels"] = None if label is None else _read_labels(label)
    with Client(server or None, token=token) as client:
        model = client.describe_model(
            name, **{key: value for key, value in changes.items() if value is not None}
        )
    if json:
        print_json(model)


@app.command("remove", cls=Command)
def remove_model(
    name: Name,
    version: Annotated[
        int | None, typer.Option("--version", help="Remove only this version.", show_default=False)
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")] = False,
    server: declare.Server = None,
    token: declare.Token = None,
    json: Json = False,
) -> None:
    """Remove NAME with its versions and aliases, or one version that no alias names."""
    if version is None and not yes:
        typer.confirm(f"Remove {name} with all its versions?", abort=True, err=True)
    with Client(server or None, token=token) as client:
        client.remove_registered(name, version)
    if json:
        print_json({"removed": {"name": name, "version": version}})


def _alias_text(model: dict[str, Any]) -> str:
    return ", ".join(f"{one['alias']}={one['version']}" for one in model["aliases"])


def _label_text(labels: dict[str, str]) -> str:
    return ", ".join(f"{key}={value}" for key, value in sorted(labels.items()))

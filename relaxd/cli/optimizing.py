"""`relaxd opt`: runs passes of the compiler on a saved module."""

from pathlib import Path
from typing import Annotated, Any

import typer

from relaxd.cli.command import Json
from relaxd.cli.console import print_json
from relaxd.client import extras
from relaxd.errors import DeclarationError

Source = Annotated[
    Path | None,
    typer.Argument(
        metavar="FILE",
        help="A module: a .json file of a dump or of -o, or TVMScript (.py) without constants.",
        show_default=False,
    ),
]
Passes = Annotated[
    str,
    typer.Option(
        "-p",
        "--passes",
        metavar="NAME,...",
        help="The passes to run, in this order.",
        show_default=False,
    ),
]
Output = Annotated[
    Path | None,
    typer.Option(
        "-o",
        "--output",
        metavar="FILE",
        help="Write the result: JSON, which this command reads again, or TVMScript (.py).",
        show_default=False,
    ),
]
Target = Annotated[
    str | None,
    typer.Option(
        "--target",
        metavar="TARGET",
        help="What to compile for, in place of the file's target.",
        show_default=False,
    ),
]
List = Annotated[
    bool, typer.Option("--list", help="List all passes, what each requires, and what it ensures.")
]


def opt_command(
    source: Source = None,
    passes: Passes = "",
    output: Output = None,
    target: Target = None,
    list_passes: List = False,
    json: Json = False,
) -> None:
    """Run compiler passes on the module in FILE and print the result as TVMScript.

    Example: [bold]relaxd opt dump/00_import.json -p fold_layout,channels_last[/]
    """
    if list_passes:
        _print_passes(target or "native", json)
        return
    names = [name.strip() for name in passes.split(",") if name.strip()]
    if source is None or not (names or output):
        raise DeclarationError(
            "give a file and the passes to run", field="passes", hint="relaxd opt --help"
        )
    if not source.is_file():
        raise DeclarationError(
            f"there is no file {source}",
            field="source",
            hint="relaxd compile MODEL --dump DIR writes modules",
        )
    selected = extras.load("compiler.passes.selected", extra="compiler")
    result = selected.optimize_file(source, names, target)
    if output is not None:
        selected.save(output, result)
    if json:
        print_json({"passes": names, "output": str(output) if output else None})
    elif output is None:
        # Not by rich, which would wrap lines.
        typer.echo(selected.script_of(result))


def _print_passes(target: str, json: bool) -> None:
    selected = extras.load("compiler.passes.selected", extra="compiler")
    rows: list[Any] = selected.list_passes(target)
    if json:
        print_json({"passes": [_document(row) for row in rows]})
        return
    phase = ""
    for row in rows:
        if row.phase != phase:
            phase = row.phase
            typer.echo(phase)
        typer.echo(f"  {row.name}" + (f": {row.summary}" if row.summary else ""))
        for word, properties in (("requires", row.requires), ("ensures", row.ensures)):
            if properties:
                typer.echo(f"      {word} {', '.join(properties)}")


def _document(row: Any) -> dict[str, Any]:
    return {
        "name": row.name,
        "phase": row.phase,
        "requires": list(row.requires),
        "ensures": list(row.ensures),
        "summary": row.summary,
    }

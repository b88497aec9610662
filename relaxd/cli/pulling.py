"""`relaxd pull`: a bundle from a service or a registry into a folder."""

from pathlib import Path
from typing import Annotated

import typer

from relaxd.cli import declarations as declare
from relaxd.cli.command import Json
from relaxd.cli.console import print_json, stdout
from relaxd.cli.progress import transfer
from relaxd.cli.views import size
from relaxd.client import Client

Reference = Annotated[
    str,
    typer.Argument(
        help="A job id, a digest sha256:..., NAME@ALIAS or NAME@NUMBER, or an OCI reference "
        "host/name@sha256:...",
        show_default=False,
    ),
]
Output = Annotated[
    Path,
    typer.Option(
        "--output",
        "-o",
        metavar="DIR",
        help="The folder to write: new, empty, or an older bundle, which is replaced.",
    ),
]
Best = Annotated[
    bool, typer.Option("--best", help="Choose the best build that this machine can run.")
]


def pull_command(
    ref: Reference,
    output: Output = Path("out"),
    target: declare.OneTarget = None,
    best: Best = False,
    server: declare.Server = None,
    token: declare.Token = None,
    json: Json = False,
) -> None:
    """Fetch a bundle, every file checked against its digest."""
    with Client(server or None, token=token) as client, transfer("pulling") as moved:
        folder = client.pull(ref, output, target, best=best, report=moved)
    total = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    if json:
        print_json({"ref": ref, "output": str(folder), "size": total})
    else:
        stdout().print(f"{folder} ({size(total)})")

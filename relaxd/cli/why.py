"""`relaxd why`: the parts in which the action keys of two bundles differ."""

import json as json_format
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table

from relaxd.cli import declarations as declare
from relaxd.cli.command import Json
from relaxd.cli.console import print_json, stdout
from relaxd.client import Client
from relaxd.contract.action import ActionKey, Difference, differences
from relaxd.errors import BundleError
from relaxd.loader.bundles.bundle import read_manifest

ABSENT = "-"

Bundle = Annotated[
    str,
    typer.Argument(
        help="A bundle's folder or tar, an action key, a digest, an OCI reference or a job id.",
        show_default=False,
    ),
]


def why_command(
    key_a: Bundle,
    key_b: Bundle,
    target: declare.OneTarget = None,
    server: declare.Server = None,
    token: declare.Token = None,
    json: Json = False,
) -> None:
    """Show why a build was not a cache hit: the parts in which two action keys differ."""
    with Client(server or None, token=token) as client:
        first, second = (_key(ref, target, client) for ref in (key_a, key_b))
    differing = differences(first.parts, second.parts)
    if json:
        rows = [{"part": each.part, "a": each.have, "b": each.want} for each in differing]
        print_json({"a": first.digest, "b": second.digest, "differences": rows})
        return
    stdout().print(
        _table(differing) if differing else f"the keys are equal: {first.digest}", soft_wrap=True
    )


def _key(ref: str, target: str | None, client: Client) -> ActionKey:
    path = Path(ref)
    recorded = read_manifest(path).action_key if path.exists() else client.action_key(ref, target)
    match recorded:
        case {"digest": str(digest), "parts": dict(parts)}:
            if ActionKey(parts).digest == digest:
                return ActionKey(parts)
            raise BundleError(
                f"the parts of the action key of {ref} do not give its digest {digest}",
                hint="fetch the bundle again",
            )
    raise BundleError(f"{ref} records no action key", hint="compile it again")


def _table(differing: list[Difference]) -> Table:
    table = Table("part", "first", "second", box=None)
    for each in differing:
        table.add_row(each.part, _shown(each.have), _shown(each.want))
    return table


def _shown(value: Any) -> str:
    if value is None:
        return ABSENT
    return escape(value if isinstance(value, str) else json_format.dumps(value, sort_keys=True))

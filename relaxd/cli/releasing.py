"""`relaxd release`: states which bundles are the newest of a name."""

import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from relaxd.cli.command import Json
from relaxd.cli.console import print_json, stdout
from relaxd.errors import DeclarationError
from relaxd.provenance.checking import check_folder
from relaxd.provenance.envelope import seal
from relaxd.provenance.errors import TrustError
from relaxd.provenance.freshness import read_release
from relaxd.provenance.keys import Trust
from relaxd.provenance.release import add_release
from relaxd.provenance.signing import signer
from relaxd.provenance.statement import subjects_of

Name = Annotated[str, typer.Argument(help="The name whose newest bundles are stated.")]
Folders = Annotated[
    list[Path] | None,
    typer.Argument(
        help="Pulled bundles, one for each target; without any, the statement gets a new date.",
        show_default=False,
    ),
]
Statement = Annotated[
    Path,
    typer.Option(
        "--statement",
        metavar="FILE",
        help="The file of the statement, which is written or replaced.",
        show_default=False,
    ),
]
Key = Annotated[
    Path,
    typer.Option(
        "--key",
        metavar="PEM",
        help="The private key, or the public one beside --signing-command.",
        envvar="RELAXD_SIGNING_KEY",
        show_default=False,
    ),
]
SigningCommand = Annotated[
    str | None,
    typer.Option(
        "--signing-command",
        metavar="COMMAND",
        help="A program that signs, for a key kept elsewhere.",
        envvar="RELAXD_SIGNING_COMMAND",
        show_default=False,
    ),
]
Trusted = Annotated[
    list[Path] | None,
    typer.Option(
        "--trust",
        metavar="PEM",
        help="A public key of who built the bundles; may be repeated.",
        envvar="RELAXD_TRUSTED_KEY",
        show_default="that of --key",
    ),
]


def release_command(
    name: Name,
    folders: Folders = None,
    *,
    statement: Statement,
    key: Key,
    signing_command: SigningCommand = None,
    trust: Trusted = None,
    json: Json = False,
) -> None:
    """State, signed, which bundles are the newest of a name, in place of all older ones."""
    signing = signer(key, signing_command)
    assert signing is not None
    own = {signing.public.id: signing.public}
    newest = read_release(statement, own) if statement.exists() else None
    keys: Trust = trust or signing.public.pem.encode()
    bundles: dict[str, str] = {}
    for folder in folders or ():
        target, digest = _signed_bundle(folder, keys)
        if target in bundles:
            raise DeclarationError(
                f"two bundles are for {target}", field="folders", hint="give one for each target"
            )
        bundles[target] = digest
    release = add_release(newest, name, bundles, datetime.now(UTC).replace(microsecond=0))
    _replace(statement, seal(release.to_statement(), signing) + b"\n")
    if json:
        print_json({"name": name, "number": release.number, "bundles": dict(release.bundles)})
        return
    stdout().print(f"release {release.number} of {name}", markup=False, soft_wrap=True)
    for target, digest in sorted(release.bundles.items()):
        stdout().print(f"  {target}: {digest}", markup=False, soft_wrap=True)


def _signed_bundle(folder: Path, keys: Trust) -> tuple[str, str]:
    """Target and digest of a bundle that one of the keys signed; raises TrustError."""
    signed = check_folder(folder, keys)
    match signed:
        case {
            "predicate": {"buildDefinition": {"externalParameters": {"target": str(target)}}},
        }:
            return target, subjects_of(signed).manifest
    raise TrustError(f"the statement about {folder} names no target", part="statement")


def _replace(path: Path, content: bytes) -> None:
    """Write whole or not at all: a lost statement is a lost log."""
    fresh = path.with_name(path.name + ".new")
    with fresh.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    fresh.replace(path)

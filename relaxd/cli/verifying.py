"""`relaxd verify`: whether a trusted key signed a bundle, and whether its model compiles to it."""

import tempfile
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any

import typer

from relaxd.cli import declarations as declare
from relaxd.cli.command import Json
from relaxd.cli.console import print_json, stderr, stdout
from relaxd.client import Client, extras
from relaxd.errors import DeclarationError
from relaxd.provenance.checking import check_folder
from relaxd.provenance.freshness import NewestRelease, Policy

Reference = Annotated[
    str,
    typer.Argument(
        help="A pulled folder, a job id, a digest, or an OCI reference.", show_default=False
    ),
]
Key = Annotated[
    list[Path] | None,
    typer.Option(
        "--key",
        metavar="PEM",
        help="A public key that is trusted; may be repeated.",
        envvar="RELAXD_TRUSTED_KEY",
        show_default=False,
    ),
]
Rebuild = Annotated[
    bool, typer.Option("--rebuild", help="Compile again here, and compare bit for bit.")
]
ModelFile = Annotated[
    Path | None,
    typer.Option(
        "--model",
        metavar="PATH",
        help="The model for --rebuild, in place of the server's.",
        show_default=False,
    ),
]
SamplesFile = Annotated[
    Path | None,
    typer.Option(
        "--samples",
        metavar="NPZ",
        help="The samples that the build was calibrated with, for --rebuild.",
        show_default="the server's",
    ),
]

RELEASES = "Releases"
Release = Annotated[
    str | None,
    typer.Option(
        "--release",
        metavar="NAME",
        help="Accept the newest release of that name alone.",
        rich_help_panel=RELEASES,
        show_default=False,
    ),
]
Statement = Annotated[
    Path | None,
    typer.Option(
        "--statement",
        metavar="FILE",
        help="The statement that `relaxd release` wrote.",
        rich_help_panel=RELEASES,
        show_default=False,
    ),
]
Memory = Annotated[
    Path | None,
    typer.Option(
        "--memory",
        metavar="FILE",
        help="A file of the releases seen so far: a log that has lost some is refused.",
        rich_help_panel=RELEASES,
        show_default="nothing is remembered",
    ),
]
MaxAge = Annotated[
    float | None,
    typer.Option(
        "--max-age",
        metavar="DAYS",
        help="Refuse a statement older than this.",
        rich_help_panel=RELEASES,
        show_default=False,
        min=0,
    ),
]


def verify_command(
    ref: Reference,
    key: Key = None,
    target: declare.OneTarget = None,
    release: Release = None,
    statement: Statement = None,
    memory: Memory = None,
    max_age: MaxAge = None,
    rebuild: Rebuild = False,
    model: ModelFile = None,
    samples: SamplesFile = None,
    server: declare.Server = None,
    token: declare.Token = None,
    json: Json = False,
) -> None:
    """Check a bundle's signature and digests; with --rebuild also that its model compiles to it.

    With --release, any bundle but the newest of that name is refused.
    """
    trust = _policy(_public_keys(key), release, statement, memory, max_age)
    with (
        tempfile.TemporaryDirectory(prefix="relaxd-verify-") as scratch,
        Client(server or None, token=token) as client,
    ):
        folder = Path(ref)
        if folder.exists():
            signed = check_folder(folder, trust)
        else:
            folder = Path(scratch) / "bundle"
            signed = client.verify(ref, trust, folder, target)
        same = _rebuilt(signed, folder, model, samples, client, Path(scratch)) if rebuild else []
    _report(ref, signed, same, as_json=json)


def _public_keys(key: list[Path] | None) -> list[Path]:
    if not key:
        raise DeclarationError(
            "no key is trusted", field="key", hint="give --key with the public key's PEM file"
        )
    for path in key:
        if not path.is_file():
            raise DeclarationError(
                f"there is no file {path}", field="key", hint="give the path of a public key's PEM"
            )
    return key


def _policy(
    keys: list[Path],
    release: str | None,
    statement: Path | None,
    memory: Path | None,
    max_age: float | None,
) -> Policy:
    if release is None and (statement, memory, max_age) == (None, None, None):
        return keys
    if release is None or statement is None:
        raise DeclarationError(
            "releases are checked by a name and a statement",
            field="statement" if release else "release",
            hint="give --release NAME and --statement FILE",
        )
    age = None if max_age is None else timedelta(days=max_age)
    return NewestRelease(name=release, keys=keys, statement=statement, memory=memory, max_age=age)


def _rebuilt(
    statement: dict[str, Any],
    folder: Path,
    model: Path | None,
    samples: Path | None,
    client: Client,
    scratch: Path,
) -> list[str]:
    rebuilding = extras.load("compiler.rebuild", extra="compiler")
    origin = rebuilding.Origin.of(statement)
    source = model or scratch / "model"
    if model is None:
        client.pull_model(origin.model, source)
    if samples is None and origin.by_samples and origin.request.samples:
        samples = scratch / "samples.npz"
        samples.write_bytes(client.model(origin.request.samples))
    stderr().print("signature and digests hold; compiling again", style="dim")
    return list(rebuilding.compare(origin, folder, source, scratch / "rebuilt", samples))


def _report(ref: str, statement: dict[str, Any], same: list[str], *, as_json: bool) -> None:
    built = statement["predicate"]["buildDefinition"]
    document = {
        "ref": ref,
        "verified": True,
        "bundle": f"sha256:{statement['subject'][0]['digest']['sha256']}",
        "model": built["externalParameters"]["model"],
        "target": built["externalParameters"]["target"],
        "action_key": built["internalParameters"]["action_key"]["digest"],
        "builder": statement["predicate"]["runDetails"]["builder"]["id"],
        "rebuilt": same,
    }
    if as_json:
        print_json(document)
        return
    for name in ("bundle", "model", "target", "action_key", "builder"):
        stdout().print(f"{name:>11}: {document[name]}", soft_wrap=True)
    if same:
        stdout().print(f"{'rebuilt':>11}: equal bit for bit: {', '.join(same)}", soft_wrap=True)

"""`relaxd gc`, `relaxd pin`, `relaxd check`: what a service keeps, removes, and has whole."""

import getpass
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from relaxd.cli import declarations as declare
from relaxd.cli.command import Json
from relaxd.cli.console import print_json, stdout
from relaxd.cli.views import size
from relaxd.client import Client, extras
from relaxd.errors import DeclarationError

DryRun = Annotated[bool, typer.Option("--dry-run", help="Only list what would be removed.")]
DataDir = Annotated[
    Path | None,
    typer.Option(
        "--data-dir",
        metavar="DIR",
        help="Collect in this folder of a service's data, without asking the service.",
        show_default=False,
    ),
]
CheckedDir = Annotated[
    Path | None,
    typer.Option(
        "--data-dir",
        metavar="DIR",
        help="The folder of a service's data; by default RELAXD_* variables name it.",
        show_default=False,
    ),
]
BackupFolder = Annotated[
    Path, typer.Argument(metavar="FOLDER", help="The backup's folder.", show_default=False)
]
PinDigest = Annotated[
    str | None,
    typer.Argument(help="The digest of a bundle, an index or a model.", show_default=False),
]
Why = Annotated[
    str, typer.Option("--why", metavar="TEXT", help="The reason, shown in the list of pins.")
]
Days = Annotated[
    float | None,
    typer.Option(
        "--days", help="Days until the pin ends; by default it never does.", show_default=False
    ),
]
Remove = Annotated[bool, typer.Option("--remove", help="Remove the pin.")]
ListPins = Annotated[bool, typer.Option("--list", help="List the pins.")]


def gc_command(
    dry_run: DryRun = False,
    data_dir: DataDir = None,
    server: declare.Server = None,
    token: declare.Token = None,
    json: Json = False,
) -> None:
    """Remove what is no longer needed: old jobs, and blobs that no tag, pin or job refers to."""
    if data_dir is not None:
        tidy = extras.load("service.processes.tidy", extra="server")
        done = tidy.collect(data_dir, dry_run=dry_run)
    else:
        with Client(server or None, token=token) as client:
            done = client.collect(dry_run=dry_run)
    if json:
        print_json(done)
        return
    for digest in done["removed"] if dry_run else ():
        stdout().print(digest, soft_wrap=True)
    stdout().print(_summary(done), soft_wrap=True)


def _summary(done: dict[str, Any]) -> str:
    verb = "would remove" if done["dry_run"] else "removed"
    return (
        f"{verb} {done['removed_blobs']} of {done['blobs']} blobs ({size(done['removed_bytes'])} "
        f"of {size(done['bytes'])}), {done['expired_jobs']} jobs, {done['removed_tags']} tags of "
        f"jobs, {done['removed_records']} records, {done['expired_uploads']} uploads, "
        f"{done['expired_corrupt']} corrupt blobs"
    )


def backup_command(folder: BackupFolder, data_dir: CheckedDir = None, json: Json = False) -> None:
    """Copy a service's data into FOLDER, while it runs; what an earlier backup has is kept.

    For services of one folder, as `relaxd serve` makes them.
    """
    backup = extras.load("service.processes.backup", extra="server")
    done = backup.back_up(data_dir, folder)
    if json:
        print_json(done)
    else:
        copied = f"copied {done['files']} files ({size(done['bytes'])})"
        stdout().print(f"{copied} to {done['folder']}", soft_wrap=True)


def restore_command(folder: BackupFolder, data_dir: CheckedDir = None, json: Json = False) -> None:
    """Copy the backup in FOLDER into an empty folder of data, and check all of it."""
    backup = extras.load("service.processes.backup", extra="server")
    _show_check(backup.restore(folder, data_dir), json)


def check_command(data_dir: CheckedDir = None, json: Json = False) -> None:
    """Read every blob of a service's store, and look for all that its database needs."""
    tidy = extras.load("service.processes.tidy", extra="server")
    _show_check(tidy.check(data_dir), json)


def _show_check(done: dict[str, Any], json: bool) -> None:
    """Print what a check found; ends with 1 where something is lost."""
    lost = [*done["corrupt"], *done["missing"]]
    if json:
        print_json(done)
    else:
        for kind in ("corrupt", "missing"):
            for digest in done[kind]:
                stdout().print(f"{kind}: {digest}", soft_wrap=True)
        sound = f"{done['blobs']} sound blobs, {size(done['bytes'])}"
        missing, corrupt = len(done["missing"]), len(done["corrupt"])
        stdout().print(f"{sound}; {corrupt} corrupt, {missing} missing", soft_wrap=True)
    if lost:
        raise typer.Exit(1)


def pin_command(
    digest: PinDigest = None,
    why: Why = "",
    days: Days = None,
    remove: Remove = False,
    list_pins: ListPins = False,
    server: declare.Server = None,
    token: declare.Token = None,
    json: Json = False,
) -> None:
    """Keep a bundle, an index or a model in the store, with all that it refers to."""
    if not list_pins and digest is None:
        raise DeclarationError("no digest is given", field="digest", hint="or use --list")
    with Client(server or None, token=token) as client:
        if list_pins:
            _show(client.pins(), json)
        elif remove:
            client.unpin(str(digest))
        else:
            _show([client.pin(str(digest), who=_user(), why=why, days=days)], json)


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container without an entry for the user
        return ""


def _show(pins: list[dict[str, Any]], as_json: bool) -> None:
    if as_json:
        print_json({"pins": pins})
        return
    table = Table("digest", "by", "why", "until", box=None)
    for pin in pins:
        table.add_row(pin["digest"], pin["who"], pin["why"], pin["expires_at"] or "it is removed")
    stdout().print(table if pins else "no pins")

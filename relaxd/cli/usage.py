"""`relaxd usage`: what builds used of a service's machines."""

import re
from datetime import UTC, date, datetime, timedelta
from typing import Annotated, Any

import typer

from relaxd.cli import declarations as declare
from relaxd.cli.command import Json
from relaxd.cli.console import print_json, stdout
from relaxd.cli.views import plain_table, size
from relaxd.client import Client
from relaxd.errors import DeclarationError

PARTS = ("tenant", "project", "target", "stage", "day")


def usage_command(
    since: Annotated[
        str, typer.Option(metavar="DAYSd|DATE", help="Since when: 30d, or 2026-01-31 (UTC).")
    ] = "30d",
    by: Annotated[
        list[str] | None,
        typer.Option(
            "--by",
            metavar="|".join(PARTS),
            help="What to break it down by; repeatable.",
            show_default="all but day",
        ),
    ] = None,
    tenant: Annotated[
        str | None,
        typer.Option(
            "--tenant",
            metavar="NAME",
            help="Only this tenant.",
            show_default="one's own, for operators all",
        ),
    ] = None,
    server: declare.Server = None,
    token: declare.Token = None,
    json: Json = False,
) -> None:
    """Report processor time, memory over time and bytes of builds by tenant, project and more.

    Example: [bold]relaxd usage --since 30d --by project --by stage[/]
    """
    first = _read_day(since, datetime.now(UTC).date())
    parts = list(dict.fromkeys(by or PARTS[:-1]))
    if unknown := [part for part in parts if part not in PARTS]:
        raise DeclarationError(
            f"usage is not kept by {unknown[0]!r}", field="by", hint=f"one of {', '.join(PARTS)}"
        )
    with Client(server or None, token=token) as client:
        report = client.usage(first, by=parts, tenant=tenant)
    if json:
        print_json(report)
    else:
        _show(report, parts)


def _read_day(text: str, today: date) -> date:
    try:
        if days := re.fullmatch(r"(\d{1,5})d", text):
            return today - timedelta(days=int(days[1]))
        return date.fromisoformat(text)
    except (ValueError, OverflowError) as error:
        raise DeclarationError(
            f"cannot read --since {text!r}", field="since", hint="as in 30d, or 2026-01-31"
        ) from error


def _show(report: dict[str, Any], parts: list[str]) -> None:
    table = plain_table(*map(str.upper, parts), "ATTEMPTS", "CPU", "MEMORY", "STORED")
    for row in report["rows"]:
        table.add_row(
            *(str(row[part] or "-") for part in parts),
            str(row["attempts"]),
            f"{row['cpu_seconds']:,.1f} s",
            f"{row['memory_byte_seconds'] / (1 << 30):,.1f} GiB s",
            size(row["stored_bytes"]),
        )
    stdout().print(table if report["rows"] else f"no builds since {report['since']}")
    for name, stored in report["stores_bytes"].items():
        stdout().print(f"{name} stores {size(stored)} now", markup=False)

"""`relaxd token`, `relaxd tenant`, `relaxd audit`: who may use a service, and who changed what."""

from typing import Annotated, Any

import typer
from rich.table import Table

from relaxd.cli import declarations as declare
from relaxd.cli.command import Command, Json
from relaxd.cli.console import print_json, stderr, stdout
from relaxd.cli.views import size
from relaxd.client import Client
from relaxd.errors import DeclarationError, suggest

tokens = typer.Typer(no_args_is_help=True, help="Make, list, revoke and rotate tokens.")
tenants = typer.Typer(no_args_is_help=True, help="Make, list and limit tenants, for operators.")

SCOPES = ("submit", "read", "pull", "push", "admin")

TokenName = Annotated[str, typer.Argument(help="What the token is for.", show_default=False)]
TokenId = Annotated[str, typer.Argument(help="The token's id.", show_default=False)]
OfTenant = Annotated[
    str | None,
    typer.Option(
        "--tenant",
        metavar="NAME",
        help="The tenant; by default that of your token.",
        show_default=False,
    ),
]
ScopesOf = Annotated[
    list[str],
    typer.Option("--scope", metavar="|".join(SCOPES), help="What the token may do; repeatable."),
]
Days = Annotated[
    float | None,
    typer.Option(
        "--days", help="Days until it expires; by default it never does.", show_default=False
    ),
]
Overlap = Annotated[
    float, typer.Option("--overlap-hours", min=0, help="Hours for which the old token stays valid.")
]
TenantName = Annotated[str, typer.Argument(help="The tenant's name.", show_default=False)]
Amount = Annotated[
    str | None, typer.Option(metavar="N|none", help="The limit, or none.", show_default=False)
]


@tokens.command("create", cls=Command)
def create_token(
    name: TokenName,
    scope: ScopesOf,
    days: Days = None,
    tenant: OfTenant = None,
    server: declare.Server = None,
    token: declare.Token = None,
    json: Json = False,
) -> None:
    """Make a token; its text is printed this once."""
    for each in scope:
        if each not in SCOPES:
            raise DeclarationError(
                f"unknown scope {each!r}",
                field="scope",
                hint=suggest(each, SCOPES, f"one of {', '.join(SCOPES)}"),
            )
    with Client(server or None, token=token) as client:
        _show_issued(client.create_token(name, scope, days=days, tenant=tenant), json)


@tokens.command("list", cls=Command)
def list_tokens(
    tenant: OfTenant = None,
    server: declare.Server = None,
    token: declare.Token = None,
    json: Json = False,
) -> None:
    """Every token of a tenant, without its secret."""
    with Client(server or None, token=token) as client:
        listed_tokens = client.tokens(tenant)
    if json:
        print_json({"tokens": listed_tokens})
        return
    table = Table("id", "name", "scopes", "last used", "until", box=None)
    for one in listed_tokens:
        until = "revoked" if one["revoked_at"] else one["expires_at"] or "it is revoked"
        scopes = " ".join(one["scopes"])
        table.add_row(one["id"], one["name"], scopes, one["last_used_at"] or "never", until)
    stdout().print(table if listed_tokens else "no tokens")


@tokens.command("revoke", cls=Command)
def revoke_token(
    token_id: TokenId,
    tenant: OfTenant = None,
    server: declare.Server = None,
    token: declare.Token = None,
    json: Json = False,
) -> None:
    """End a token at once."""
    with Client(server or None, token=token) as client:
        ended = client.revoke_token(token_id, tenant)
    if json:
        print_json(ended)
    else:
        stdout().print(f"{ended['name']} ({ended['id']}) is revoked")


@tokens.command("rotate", cls=Command)
def rotate_token(
    token_id: TokenId,
    overlap_hours: Overlap = 0,
    tenant: OfTenant = None,
    server: declare.Server = None,
    token: declare.Token = None,
    json: Json = False,
) -> None:
    """Replace a token; the new one's text is printed this once."""
    with Client(server or None, token=token) as client:
        issued = client.rotate_token(token_id, overlap_hours=overlap_hours, tenant=tenant)
    _show_issued(issued, json)


def _show_issued(issued: dict[str, Any], as_json: bool) -> None:
    if as_json:
        print_json(issued)
        return
    about = f"token {issued['id']} of tenant {issued['tenant']}, for {' '.join(issued['scopes'])}"
    stderr().print(f"{about}; keep it, it is not shown again:")
    typer.echo(issued["token"])


@tenants.command("create", cls=Command)
def create_tenant(
    name: TenantName,
    server: declare.Server = None,
    token: declare.Token = None,
    json: Json = False,
) -> None:
    """Make a tenant without limits."""
    with Client(server or None, token=token) as client:
        _show_tenants([client.create_tenant(name)], json)


@tenants.command("list", cls=Command)
def list_tenants(
    server: declare.Server = None, token: declare.Token = None, json: Json = False
) -> None:
    """Every tenant, its limits and what it stores."""
    with Client(server or None, token=token) as client:
        _show_tenants(client.tenants(), json)


@tenants.command("set", cls=Command)
def set_tenant(
    name: TenantName,
    stored_mb: Amount = None,
    running: Amount = None,
    queued: Amount = None,
    requests: Amount = None,
    weight: Annotated[
        float | None,
        typer.Option(help="Its share of the workers, relative to 1.", show_default=False),
    ] = None,
    shares_cache: Annotated[
        bool | None,
        typer.Option(
            "--share-cache/--own-cache",
            help="Share cached results with tenants that share theirs.",
            show_default=False,
        ),
    ] = None,
    server: declare.Server = None,
    token: declare.Token = None,
    json: Json = False,
) -> None:
    """Change some of a tenant's limits."""
    changes: dict[str, Any] = {}
    for field, text, scale in (
        ("stored_bytes", stored_mb, 1 << 20),
        ("running", running, 1),
        ("queued", queued, 1),
    ):
        if text is not None:
            number = _number(field, text)
            changes[field] = None if number is None else int(number * scale)
    if requests is not None:
        changes["requests"] = _number("requests", requests)
    changes |= {} if weight is None else {"weight": weight}
    changes |= {} if shares_cache is None else {"shares_cache": shares_cache}
    with Client(server or None, token=token) as client:
        _show_tenants([client.set_tenant(name, **changes)], json)


@tenants.command("delete", cls=Command)
def delete_tenant(
    name: TenantName,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")] = False,
    server: declare.Server = None,
    token: declare.Token = None,
    json: Json = False,
) -> None:
    """Delete a tenant for good, with its tokens, jobs, tags and pins.

    Garbage collections remove what it alone stored.
    """
    if not yes:
        typer.confirm(f"Delete the tenant {name} with all that it has?", abort=True, err=True)
    with Client(server or None, token=token) as client:
        done = client.delete_tenant(name)
    if json:
        print_json(done)
        return
    stdout().print(
        f"{done['name']} is deleted, with {done['jobs']} jobs, {done['tokens']} tokens and "
        f"{done['tags']} tags"
    )


def _number(field: str, text: str) -> float | None:
    if text == "none":
        return None
    try:
        return float(text)
    except ValueError as error:
        raise DeclarationError(
            f"{text!r} is not a number", field=field, hint="give a number, or none for no limit"
        ) from error


def _show_tenants(tenants: list[dict[str, Any]], as_json: bool) -> None:
    if as_json:
        print_json({"tenants": tenants})
        return
    columns = ("name", "stores", "of", "running", "queued", "requests/s", "weight", "cache")
    table = Table(*columns, box=None)
    for tenant in tenants:
        limits = [tenant[name] for name in ("running", "queued", "requests")]
        table.add_row(
            tenant["name"],
            size(tenant["stores_bytes"]),
            "any" if tenant["stored_bytes"] is None else size(tenant["stored_bytes"]),
            *("any" if limit is None else f"{limit:g}" for limit in limits),
            f"{tenant['weight']:g}",
            "shared" if tenant["shares_cache"] else "own",
        )
    stdout().print(table)


def audit_command(
    limit: Annotated[
        int, typer.Option("--limit", min=1, max=1000, help="The largest number of entries to list.")
    ] = 50,
    tenant: OfTenant = None,
    server: declare.Server = None,
    token: declare.Token = None,
    json: Json = False,
) -> None:
    """List who changed what, newest first; operators see all tenants."""
    with Client(server or None, token=token) as client:
        entries = client.audit(limit=limit, tenant=tenant)
    if json:
        print_json({"entries": entries})
        return
    table = Table("time", "tenant", "who", "action", "what", "outcome", box=None)
    for entry in entries:
        named = (entry[key] for key in ("tenant", "principal", "action", "subject", "outcome"))
        table.add_row(entry["time"][:19], *named)
    stdout().print(table if entries else "no entries")

"""`relaxd webhook`: URLs that a service tells of a tenant's events."""

from typing import Annotated

import typer
from rich.markup import escape

from relaxd.cli import declarations as declare
from relaxd.cli.command import Command, Json
from relaxd.cli.console import print_json, stderr, stdout
from relaxd.cli.views import plain_table
from relaxd.client import Client

app = typer.Typer(no_args_is_help=True, help="Have a URL told of events.")

WebhookId = Annotated[str, typer.Argument(help="The webhook's id.", show_default=False)]


@app.command("create", cls=Command)
def create_webhook(
    url: Annotated[str, typer.Argument(help="Where messages go.", show_default=False)],
    event: Annotated[
        list[str] | None,
        typer.Option(
            "--event",
            metavar="alias.moved|gate.failed|job.finished",
            help="An event to send; repeatable, by default all.",
            show_default=False,
        ),
    ] = None,
    server: declare.Server = None,
    token: declare.Token = None,
    json: Json = False,
) -> None:
    """Make a webhook; the secret that signs its messages is printed this once."""
    with Client(server or None, token=token) as client:
        webhook = client.create_webhook(url, event)
    if json:
        print_json(webhook)
        return
    stderr().print(
        f"webhook {webhook['id']}, told of {', '.join(webhook['events'])}; keep its secret, it is "
        "not shown again:"
    )
    typer.echo(webhook["secret"])


@app.command("list", cls=Command)
def list_webhooks(
    server: declare.Server = None, token: declare.Token = None, json: Json = False
) -> None:
    """List a tenant's webhooks, without their secrets."""
    with Client(server or None, token=token) as client:
        webhooks = client.webhooks()
    if json:
        print_json({"webhooks": webhooks})
        return
    table = plain_table("ID", "URL", "EVENTS")
    for one in webhooks:
        table.add_row(one["id"], escape(one["url"]), ", ".join(one["events"]))
    stdout().print(table if webhooks else "no webhooks")


@app.command("delete", cls=Command)
def delete_webhook(
    webhook: WebhookId,
    server: declare.Server = None,
    token: declare.Token = None,
    json: Json = False,
) -> None:
    """Remove a webhook; messages that wait are not sent."""
    with Client(server or None, token=token) as client:
        client.remove_webhook(webhook)
    if json:
        print_json({"removed": {"webhook": webhook}})


@app.command("ping", cls=Command)
def ping_webhook(
    webhook: WebhookId,
    server: declare.Server = None,
    token: declare.Token = None,
    json: Json = False,
) -> None:
    """Send a message without meaning; `log` shows how it went."""
    with Client(server or None, token=token) as client:
        client.ping_webhook(webhook)
    if json:
        print_json({"sent": {"webhook": webhook, "event": "webhook.ping"}})


@app.command("log", cls=Command)
def log_webhook(
    webhook: WebhookId,
    server: declare.Server = None,
    token: declare.Token = None,
    json: Json = False,
) -> None:
    """List the messages of the last days, the newest first."""
    with Client(server or None, token=token) as client:
        deliveries = client.deliveries(webhook)
    if json:
        print_json({"deliveries": deliveries})
        return
    table = plain_table("CREATED", "EVENT", "ATTEMPTS", "OUTCOME")
    for one in deliveries:
        waits = f"again at {one['next_at'][:19]}" if one["next_at"] else "failed"
        outcome = "delivered" if one["delivered_at"] else waits
        text = f"{outcome}: {one['error']}" if one["error"] else outcome
        table.add_row(one["created_at"][:19], one["event"], str(one["attempts"]), escape(text))
    stdout().print(table if deliveries else "no messages")

"""Endpoints of webhooks: where a tenant is told of its events."""

import ipaddress
from dataclasses import asdict
from datetime import datetime
from typing import Annotated
from urllib.parse import urlsplit

from fastapi import APIRouter, Path, Query
from pydantic import BaseModel, Field

from relaxd.errors import DeclarationError
from relaxd.http.public_addresses import is_public
from service.api.context import UsePrincipal, UseServices
from service.api.tenant_threads import TenantRoute
from service.api.wire import Document
from service.domain import Delivery, HookEvent, Webhook
from service.usecases.webhooks import hooks

router = APIRouter(route_class=TenantRoute, prefix="/v1/webhooks", tags=["webhooks"])

WebhookId = Annotated[str, Path(description="The webhook's id.", max_length=40)]
_ALL = (HookEvent.ALIAS_MOVED, HookEvent.GATE_FAILED, HookEvent.JOB_FINISHED)


class WebhookIn(Document):
    """A webhook to make; without `events`, it is told of all."""

    url: Annotated[str, Field(max_length=2000, pattern=r"^[\x21-\x7e]+$")]
    events: list[Annotated[HookEvent, Field(strict=False)]] = Field(
        default_factory=lambda: list(_ALL), min_length=1, max_length=len(HookEvent)
    )


class WebhookOut(BaseModel):
    """A webhook, without its secret."""

    id: str
    url: str
    events: list[HookEvent]
    created_at: datetime
    created_by: str

    @classmethod
    def of(cls, webhook: Webhook) -> "WebhookOut":
        """From the domain."""
        return cls(**asdict(webhook))


class NewWebhookOut(WebhookOut):
    """A new webhook; `secret` signs its messages, and is shown this once."""

    secret: str


class WebhookList(BaseModel):
    """Webhooks, the oldest first."""

    webhooks: list[WebhookOut]


class DeliveryOut(BaseModel):
    """A message: `next_at` is null once it has arrived (`delivered_at`) or failed for good;
    `error` is the last attempt's.
    """

    id: str
    event: HookEvent
    created_at: datetime
    attempts: int
    next_at: datetime | None
    delivered_at: datetime | None
    error: str | None

    @classmethod
    def of(cls, delivery: Delivery) -> "DeliveryOut":
        """From the domain."""
        return cls(**asdict(delivery))


class DeliveryList(BaseModel):
    """Messages of the last days, the newest first."""

    deliveries: list[DeliveryOut]


@router.get("", summary="List webhooks")
def list_webhooks(services: UseServices, principal: UsePrincipal) -> WebhookList:
    """The tenant's."""
    listed = hooks.list_all(services.core, principal.tenant)
    return WebhookList(webhooks=[WebhookOut.of(one) for one in listed])


@router.post("", summary="Make a webhook", status_code=201)
def create_webhook(
    services: UseServices, principal: UsePrincipal, body: WebhookIn
) -> NewWebhookOut:
    """Messages are signed as Standard Webhooks says, with the secret of the answer."""
    _check_url(body.url, private=services.settings.webhook_private)
    new = hooks.create(services.core, principal.tenant, body.url, body.events, principal.name)
    return NewWebhookOut(**asdict(new.webhook), secret=new.secret)


def _check_url(url: str, *, private: bool) -> None:
    """Raise DeclarationError for a URL that no message will be sent to; what a name resolves to is
    checked with every attempt.
    """
    hint = "name a public https URL; RELAXD_WEBHOOK_PRIVATE on the server allows others"
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError as error:
        raise DeclarationError(f"the URL is malformed: {error}", field="url", hint=hint) from error
    if not host or parts.username is not None or parts.fragment:
        raise DeclarationError(
            "the URL must have a host, and neither a user nor a fragment", field="url", hint=hint
        )
    if parts.scheme not in ("http", "https"):
        raise DeclarationError("the URL must begin with https://", field="url", hint=hint)
    if private:
        return
    if parts.scheme == "http":
        raise DeclarationError("plain HTTP is not allowed", field="url", hint=hint)
    try:
        address = ipaddress.ip_address(host)
    except ValueError:  # a name
        return
    if not is_public(address):
        raise DeclarationError(f"{host} is not a public address", field="url", hint=hint)


@router.delete("/{webhook_id}", summary="Remove a webhook", status_code=204)
def remove_webhook(services: UseServices, principal: UsePrincipal, webhook_id: WebhookId) -> None:
    """Messages that wait are not sent any more."""
    hooks.remove(services.core, principal.tenant, webhook_id)


@router.post("/{webhook_id}:ping", summary="Send a message to a webhook", status_code=202)
def ping(services: UseServices, principal: UsePrincipal, webhook_id: WebhookId) -> None:
    """Its type is `webhook.ping`; how it went is among the deliveries."""
    hooks.ping(services.core, principal.tenant, webhook_id)


@router.get("/{webhook_id}/deliveries", summary="List the messages of a webhook")
def list_deliveries(
    services: UseServices,
    principal: UsePrincipal,
    webhook_id: WebhookId,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
) -> DeliveryList:
    """Those of the last seven days."""
    listed = hooks.list_deliveries(services.core, principal.tenant, webhook_id, limit)
    return DeliveryList(deliveries=[DeliveryOut.of(one) for one in listed])

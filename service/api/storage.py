"""Endpoints for operators of the store: garbage collection and pins."""

from dataclasses import asdict
from datetime import datetime
from typing import Annotated

from fastapi import APIRouter, Path, Query
from pydantic import BaseModel, Field

from service.api.context import UsePrincipal, UseServices
from service.api.tenant_threads import TenantRoute
from service.api.wire import Document
from service.domain import Pin
from service.usecases.store import collecting, pinning

router = APIRouter(route_class=TenantRoute, prefix="/v1", tags=["operations"])

PinDigest = Annotated[str, Path(description="The blob's or the manifest's digest.", max_length=80)]


_LINE = r"^[^\x00-\x1f\x7f]*$"


class PinIn(Document):
    """Who pins, why, and for how many days (null: without end)."""

    who: str = Field("", max_length=200, pattern=_LINE)
    why: str = Field("", max_length=2000, pattern=_LINE)
    days: float | None = Field(None, gt=0, le=36500, allow_inf_nan=False)


class PinOut(BaseModel):
    """A pin."""

    digest: str
    who: str
    why: str
    created_at: datetime
    expires_at: datetime | None

    @classmethod
    def of(cls, pin: Pin) -> "PinOut":
        """From the domain."""
        return cls(**asdict(pin))


class PinList(BaseModel):
    """The pins that hold now."""

    pins: list[PinOut]


class CollectionOut(BaseModel):
    """The result of a garbage collection: `blobs` and `bytes`, and what it removed or would."""

    dry_run: bool
    blobs: int
    bytes: int
    removed_blobs: int
    removed_bytes: int
    removed_records: int
    removed_tags: int
    expired_jobs: int
    expired_uploads: int
    expired_corrupt: int
    removed: list[str]


@router.post("/gc", summary="Collect garbage")
def collect(
    services: UseServices,
    dry_run: Annotated[bool, Query(description="Only list what would be removed.")] = False,
) -> CollectionOut:
    """Answers when the collection has ended; 409 while another runs."""
    return CollectionOut(**asdict(collecting.run(services.core, dry_run=dry_run)))


@router.get("/pins", summary="List pins")
def list_pins(services: UseServices, principal: UsePrincipal) -> PinList:
    """The oldest first."""
    pins = pinning.list_pins(services.core, principal.tenant)
    return PinList(pins=[PinOut.of(pin) for pin in pins])


@router.put("/pins/{digest}", summary="Pin a blob or a manifest")
def pin(services: UseServices, principal: UsePrincipal, digest: PinDigest, body: PinIn) -> PinOut:
    """It stays in the store with all that it refers to; replaces an earlier pin of it."""
    pin_fields = body.model_dump()
    return PinOut.of(pinning.pin(services.core, digest, **pin_fields, tenant=principal.tenant))


@router.delete("/pins/{digest}", summary="Remove a pin", status_code=204)
def unpin(services: UseServices, principal: UsePrincipal, digest: PinDigest) -> None:
    """The next collection may remove what it kept."""
    pinning.unpin(services.core, digest, principal.tenant)

"""Pins: what stays in the store by someone's wish."""

from sqlalchemy import delete, insert, or_, select, update

from artifacts.documents import keep, read_document
from artifacts.errors import BlobNotFound, InvalidManifest
from service.core import Core
from service.db import records
from service.db.schema import pins
from service.domain import Pin
from service.errors import UnknownPin
from service.identity import DEFAULT
from service.usecases.store import holdings


def pin(
    core: Core,
    digest: str,
    *,
    who: str,
    why: str,
    days: float | None = None,
    tenant: str = DEFAULT,
) -> Pin:
    """Keep the blob for the tenant, with all that it refers to, for so many days or without end;
    replaces an earlier pin of it. Raises BlobNotFound where the blob or a part of it is missing,
    InvalidDigest.
    """
    keep_for(core, digest, tenant)
    mine = (pins.c.tenant == tenant) & (pins.c.digest == digest)
    with core.writing() as tx:
        values = {
            "who": who,
            "why": why,
            "created_at": tx.now,
            "expires_at": None if days is None else tx.now + days * 86400,
        }
        known = update(pins).where(mine)
        if not tx.connection.execute(known.values(values)).rowcount:
            tx.connection.execute(insert(pins).values(tenant=tenant, digest=digest, **values))
        row = tx.connection.execute(select(pins).where(mine)).one()
    return records.pin_from(row)


def keep_for(core: Core, digest: str, tenant: str) -> None:
    """Have the next collection leave the blob with all that it refers to, so that a row of the
    database can name it; raises BlobNotFound where the tenant may not read a part, InvalidDigest.
    """
    blobs = holdings.view(core, tenant).blobs
    if not blobs.touch(digest):
        raise BlobNotFound(digest)
    try:
        read_document(blobs, digest)
    except InvalidManifest:  # a model, or another blob that refers to nothing
        return
    if not keep(blobs, digest):
        raise BlobNotFound(digest)


def unpin(core: Core, digest: str, tenant: str = DEFAULT) -> None:
    """Remove the tenant's pin; raises UnknownPin."""
    mine = (pins.c.tenant == tenant) & (pins.c.digest == digest)
    with core.writing() as tx:
        if not tx.connection.execute(delete(pins).where(mine)).rowcount:
            raise UnknownPin(digest)


def list_pins(core: Core, tenant: str | None = None) -> list[Pin]:
    """The pins that hold now, oldest first; of one tenant, or of all."""
    with core.reading() as tx:
        holds = or_(pins.c.expires_at.is_(None), pins.c.expires_at > tx.now)
        if tenant is not None:
            holds = holds & (pins.c.tenant == tenant)
        query = select(pins).where(holds).order_by(pins.c.created_at, pins.c.digest)
        return [records.pin_from(row) for row in tx.connection.execute(query)]


def expire(core: Core) -> None:
    """Remove the pins whose time is up."""
    with core.writing() as tx:
        tx.connection.execute(delete(pins).where(pins.c.expires_at <= tx.now))

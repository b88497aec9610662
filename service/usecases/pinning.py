"""Pins: what stays in the store by someone's wish."""

from sqlalchemy import delete, insert, or_, select, update

from artifacts.documents import keep, read_document
from artifacts.errors import BlobNotFound, InvalidManifest
from service.core import Core
from service.db import records
from service.db.schema import pins
from service.domain import Pin
from service.errors import UnknownPin


def pin(core: Core, digest: str, *, who: str, why: str, days: float | None = None) -> Pin:
    """Keep the blob, and all that it refers to, for so many days or without end; replaces an
    earlier pin of it. Raises BlobNotFound where the blob or a part of it is missing, InvalidDigest.
    """
    _keep(core, digest)
    with core.writing() as tx:
        values = {
            "who": who,
            "why": why,
            "created_at": tx.now,
            "expires_at": None if days is None else tx.now + days * 86400,
        }
        known = update(pins).where(pins.c.digest == digest)
        if not tx.connection.execute(known.values(values)).rowcount:
            tx.connection.execute(insert(pins).values(digest=digest, **values))
        row = tx.connection.execute(select(pins).where(pins.c.digest == digest)).one()
    return records.pin_from(row)


def _keep(core: Core, digest: str) -> None:
    blobs = core.store.blobs
    if not blobs.touch(digest):
        raise BlobNotFound(digest)
    try:
        read_document(blobs, digest)
    except InvalidManifest:  # a model, or another blob that refers to nothing
        return
    if not keep(blobs, digest):
        raise BlobNotFound(digest)


def unpin(core: Core, digest: str) -> None:
    """Remove the pin; raises UnknownPin."""
    with core.writing() as tx:
        if not tx.connection.execute(delete(pins).where(pins.c.digest == digest)).rowcount:
            raise UnknownPin(digest)


def pinned(core: Core) -> list[Pin]:
    """The pins that hold now, oldest first."""
    with core.reading() as tx:
        holds = or_(pins.c.expires_at.is_(None), pins.c.expires_at > tx.now)
        query = select(pins).where(holds).order_by(pins.c.created_at, pins.c.digest)
        return [records.pin_from(row) for row in tx.connection.execute(query)]


def expire(core: Core) -> None:
    """Remove the pins whose time is up."""
    with core.writing() as tx:
        tx.connection.execute(delete(pins).where(pins.c.expires_at <= tx.now))

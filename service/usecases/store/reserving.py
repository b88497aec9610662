"""Reservations: what a tenant has under way counts for its quota from the first byte, so that no
number of requests at once stores more than it may.
"""

import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from sqlalchemy import ColumnElement, and_, bindparam, delete, func, insert, select, update

from artifacts.store import hex_of
from relaxd.contract.canonical import digest_of
from service.core import Core
from service.db.schema import reservations, tenants
from service.db.transaction import Transaction
from service.errors import QuotaExceeded, TooManyUploads

STEP = 16 << 20
"""The most that is reserved ahead of what has come: each reservation is a write to the database."""
DAY_S = 24 * 3600
FOR_EVER_DAYS = 36500

# Made once: every part of an upload asks.
_LIMITS = select(tenants.c.stored_limit, tenants.c.stored_bytes).where(
    tenants.c.name == bindparam("tenant")
)
_ARE_OTHERS = and_(
    reservations.c.tenant == bindparam("tenant"),
    reservations.c.held_until > bindparam("now"),
    reservations.c.id != bindparam("mine"),
)
_OTHERS = select(func.sum(reservations.c.size)).where(_ARE_OTHERS)
_OTHER_UPLOADS = (
    select(reservations.c.id).where(_ARE_OTHERS, reservations.c.is_upload).limit(bindparam("most"))
)


@dataclass
class Reservation:
    """Bytes of a tenant's that are under way. They are counted in the database where the tenant has
    a quota, and uploads always, since their number is limited.

    size: bytes counted so far. Without a sign of its owner for `kept_s`, by default `upload_s`, a
    reservation is over.
    """

    core: Core
    tenant: str
    id: str = field(default_factory=lambda: secrets.token_hex(16))
    is_upload: bool = False
    size: int = 0
    kept_s: float | None = None
    _written_at: float | None = None

    def cover(self, size: int, *, is_all: bool = False) -> None:
        """Count `size` bytes in all, if that many are not counted already, and prolong the
        reservation; raises QuotaExceeded, with what was counted before.

        is_all: no more will come; else some are counted ahead.
        """
        if self.covers(size):
            return
        if not self._is_counted:
            size += STEP
        else:
            self._require(size)
            with self.core.writing() as tx:
                size = self._grow(tx, size, ahead=0 if is_all else STEP)
        self.size, self._written_at = size, self.core.clock()

    def covers(self, size: int) -> bool:
        """True if `cover` has nothing to do."""
        written = self._written_at
        if written is None or self.core.clock() > written + self.core.settings.upload_s / 2:
            return False
        return size <= self.size

    def begin(self, size: int) -> None:
        """Count an upload of so many bytes, as far as they are known; raises TooManyUploads,
        QuotaExceeded, the latter also where the tenant stores as much as it may.
        """
        self._require(max(1, size))
        with self.core.reading() as tx:
            self._require_number(tx)
        with self.core.writing() as tx:
            self.size = self._grow(tx, max(1, size), ahead=0)
            self._require_number(tx)
        self._written_at = self.core.clock()

    def settle(self, size: int) -> None:
        """Count `size` bytes and none ahead."""
        if size < self.size and self._written_at is not None and self._is_counted:
            with self.core.writing() as tx:
                self.draw(tx, self.size - size)

    def draw(self, tx: Transaction, amount: int) -> None:
        """Count `amount` bytes no longer, which the transaction counts as stored."""
        self.size = max(0, self.size - amount)
        if self._written_at is not None and self._is_counted:
            tx.connection.execute(update(reservations).where(self._is_mine).values(size=self.size))

    @property
    def is_begun(self) -> bool:
        """True if `end` may have something to do."""
        return self.is_upload or self._written_at is not None

    def end(self) -> None:
        """Count nothing any more."""
        if self.is_upload or (self._written_at is not None and self._is_counted):
            with self.core.writing() as tx:
                tx.connection.execute(delete(reservations).where(self._is_mine))

    def count_more(self, tx: Transaction, amount: int) -> None:
        """Count so many bytes more than the database does; raises QuotaExceeded."""
        counted = select(reservations.c.size).where(self._is_mine).with_for_update()
        self.size = tx.connection.execute(counted).scalar_one_or_none() or 0
        self._grow(tx, self.size + amount, ahead=0)

    def room(self, tx: Transaction) -> int | None:
        """Bytes that the tenant may have under this reservation, None for any number; in a writing
        transaction, others that reserve wait from here on.
        """
        row = tx.connection.execute(tx.with_lock(_LIMITS), {"tenant": self.tenant}).one_or_none()
        if row is None or row.stored_limit is None:
            return None
        others = tx.connection.execute(_OTHERS, self._arguments(tx)).scalar_one()
        return int(row.stored_limit - row.stored_bytes - (others or 0))

    def _arguments(self, tx: Transaction) -> dict[str, Any]:
        return {"tenant": self.tenant, "mine": self.id, "now": tx.now}

    @cached_property
    def _is_counted(self) -> bool:
        if self.is_upload:
            return True
        limit = select(tenants.c.stored_limit).where(tenants.c.name == self.tenant)
        with self.core.reading() as tx:
            return tx.connection.execute(limit).scalar_one_or_none() is not None

    @property
    def _is_mine(self) -> ColumnElement[bool]:
        return reservations.c.id == self.id

    def _require(self, size: int) -> None:
        """Raise QuotaExceeded where the tenant has no room for so many bytes: no write has to begin
        to find that out, which others would wait for.
        """
        with self.core.reading() as tx:
            room = self.room(tx)
        if room is not None and size > room:
            raise QuotaExceeded(self.tenant)

    def _require_number(self, tx: Transaction) -> None:
        """Raise TooManyUploads where the tenant has as many others under way as it may have."""
        most = self.core.settings.max_uploads
        arguments = {**self._arguments(tx), "most": most}
        if len(tx.connection.execute(_OTHER_UPLOADS, arguments).all()) >= most:
            raise TooManyUploads(self.tenant, most)

    def _grow(self, tx: Transaction, size: int, *, ahead: int) -> int:
        """Write the reservation; the bytes that it counts from now on."""
        size = max(size, self.size)
        room = self.room(tx)
        if room is not None and size > room:
            raise QuotaExceeded(self.tenant)
        # A part of what is left only: others upload at the same time.
        size += ahead if room is None else min(ahead, (room - size) // 8)
        kept_s = self.core.settings.upload_s if self.kept_s is None else self.kept_s
        values = {"size": size, "held_until": tx.now + kept_s}
        mine = update(reservations).where(self._is_mine).values(values)
        if not tx.connection.execute(mine).rowcount:
            row = {"id": self.id, "tenant": self.tenant, "is_upload": self.is_upload, **values}
            tx.connection.execute(insert(reservations).values(row))
        return size


def charge_job(core: Core, tenant: str, size: int) -> None:
    """Count what a job takes in the database for as long as jobs are kept; raises QuotaExceeded.
    The jobs of a day are one reservation.
    """
    kept_s = DAY_S * (core.settings.retention_days or FOR_EVER_DAYS)
    with core.writing() as tx:
        name = digest_of(f"jobs of {tenant} on {tx.now // DAY_S:.0f}".encode())
        day = Reservation(core, tenant, hex_of(name)[:40], kept_s=kept_s)
        day.count_more(tx, size)


def require_room(core: Core, tenant: str) -> None:
    """Raise QuotaExceeded where the tenant has as much stored and under way as it may."""
    with core.reading() as tx:
        room = Reservation(core, tenant).room(tx)
    if room is not None and room <= 0:
        raise QuotaExceeded(tenant)


def expire(core: Core, names: Sequence[str] = ()) -> None:
    """Forget reservations whose owners have died, and those of uploads of these names."""
    with core.writing() as tx:
        over = (reservations.c.held_until <= tx.now) | reservations.c.id.in_(names)
        tx.connection.execute(delete(reservations).where(over))


@dataclass(frozen=True)
class Uploads:
    """The reservations of uploads, each by the name of its file."""

    core: Core

    def reservation(self, tenant: str, name: str, size: int = 0) -> Reservation:
        """That of an upload of which so many bytes have come."""
        return Reservation(self.core, tenant, name, is_upload=True, size=size)

"""Chores: work that one process at a time does for all, by a lease in the database."""

import os
import secrets
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import structlog
from sqlalchemy import select, update

from service.core import Core
from service.db.schema import chores
from service.errors import ChoreTaken, DatabaseUnavailable

GC = "gc"
AUDIT = "gc-audit"
LEASE_S = 120.0

logger = structlog.get_logger("relaxd.chores")


@dataclass
class Turn:
    """One process's turn at a chore; lost once another has taken it, after LEASE_S of silence."""

    core: Core
    name: str
    holder: str
    renewed_at: float

    def renew(self) -> None:
        """Prolong the turn where a third of it has passed; raises ChoreTaken once it is lost."""
        if self.core.clock() < self.renewed_at + LEASE_S / 3:
            return
        mine = (chores.c.name == self.name) & (chores.c.holder == self.holder)
        with self.core.writing() as tx:
            values = {"held_until": tx.now + LEASE_S}
            if not tx.connection.execute(update(chores).where(mine).values(values)).rowcount:
                raise ChoreTaken(self.name, "another process, which took over")
            self.renewed_at = tx.now

    @contextmanager
    def renew_beside(self) -> Iterator[None]:
        """Renew the turn by a thread while the block lasts: one statement may take longer than a
        lease.
        """
        ended = threading.Event()
        thread = threading.Thread(target=self._renew_until, args=(ended,), name=f"turn-{self.name}")
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()

    def _renew_until(self, ended: threading.Event) -> None:
        while not ended.wait(LEASE_S / 4):
            try:
                self.renew()
            except DatabaseUnavailable as error:
                logger.warning("a turn was not renewed", chore=self.name, error=str(error))
            except ChoreTaken:  # the block's next renewal raises it again
                return


@contextmanager
def turn(core: Core, name: str) -> Iterator[Turn]:
    """The turn of this process while the block lasts; raises ChoreTaken while another has it."""
    holder = f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(3)}"
    free = (chores.c.name == name) & (chores.c.held_until < core.clock())
    with core.writing() as tx:
        values = {"holder": holder, "held_until": tx.now + LEASE_S}
        if not tx.connection.execute(update(chores).where(free).values(values)).rowcount:
            query = select(chores.c.holder).where(chores.c.name == name)
            raise ChoreTaken(name, tx.connection.execute(query).scalar_one())
        began = tx.now
    try:
        yield Turn(core, name, holder, began)
    finally:
        mine = (chores.c.name == name) & (chores.c.holder == holder)
        with core.writing() as tx:
            tx.connection.execute(update(chores).where(mine).values(held_until=0, ran_at=began))


def last_began(core: Core, name: str) -> float:
    """When the chore last began and ended, in seconds since the epoch; 0 for never."""
    with core.reading() as tx:
        query = select(chores.c.ran_at).where(chores.c.name == name)
        return float(tx.connection.execute(query).scalar_one())


def note_run(core: Core, name: str, began: float) -> None:
    """Note that the chore was done, by a process that began it then."""
    with core.writing() as tx:
        mine = update(chores).where(chores.c.name == name)
        tx.connection.execute(mine.values(ran_at=began))


def is_due(core: Core, name: str, every_s: float) -> bool:
    """True if the chore last began `every_s` or longer ago and nobody is at it."""
    with core.reading() as tx:
        row = tx.connection.execute(select(chores).where(chores.c.name == name)).one()
        return bool(row.held_until < tx.now and row.ran_at <= tx.now - every_s)

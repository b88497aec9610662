"""The janitor: a thread beside a worker's builds that collects garbage when it is due."""

import threading

import structlog

from artifacts.errors import StoreError
from service.core import Core
from service.db import recovery
from service.domain import Collection
from service.errors import ChoreTaken, DatabaseUnavailable
from service.identity import DEFAULT
from service.usecases import auditing
from service.usecases.store import collecting, sweeping

LOOK_S = 30.0

logger = structlog.get_logger("relaxd.gc")


class _ShuttingDown(Exception):
    """The worker ends."""


def tidy_until(shutdown: threading.Event, core: Core) -> None:
    """Look now and then whether a collection is due, of which one runs at a time among all workers,
    and whether space is set aside for a full disk; survives a store or a database that is away.
    """

    def check() -> None:
        if shutdown.is_set():
            raise _ShuttingDown

    while not shutdown.wait(min(LOOK_S, core.settings.gc_s or LOOK_S)):
        recovery.set_aside(core.settings)
        try:
            if collecting.is_due(core):
                _note(core, collecting.run(core, check=check))
            elif collecting.is_sweeping(core):
                sweeping.help_sweep(core, check)
        except _ShuttingDown:
            return
        except ChoreTaken:  # another worker was first
            continue
        except (StoreError, DatabaseUnavailable) as error:
            logger.warning("the collection failed", error=str(error))


def _note(core: Core, done: Collection) -> None:
    """Write what was removed to the audit log, which has what people have collected already."""
    if done.removed_blobs or done.expired_jobs:
        auditing.record(
            core,
            tenant=DEFAULT,
            principal="a worker",
            action="gc",
            subject="",
            outcome="done",
            detail={"removed_blobs": done.removed_blobs, "expired_jobs": done.expired_jobs},
        )

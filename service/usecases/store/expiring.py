"""Expiry: jobs that ended long ago, uploads that nobody goes on with, and blobs that were set aside
as corrupt.
"""

import os
from collections.abc import Callable, Sequence
from contextlib import suppress

from sqlalchemy import ColumnElement, delete, false, func, select

from relaxd.contract.states import State
from service.core import Core
from service.db.schema import builds, events, jobs
from service.usecases.store import reserving

BATCH, MANY = 20, 500
"""Jobs removed in one transaction, which others wait for on SQLite; and on a server."""
_ENDED = [state for state in State if state.terminal]


def is_old(core: Core, now: float) -> ColumnElement[bool]:
    """The condition on `jobs` of those whose retention is over."""
    days = core.settings.retention_days
    if not days:
        return false()
    # No part may be NULL, since the negation is what is kept.
    ended = jobs.c.finished_at.is_not(None) & jobs.c.state.in_(_ENDED)
    return ended & (jobs.c.finished_at < now - days * 86400)


def count_old_jobs(core: Core) -> int:
    """How many jobs `expire_jobs` would remove."""
    with core.reading() as tx:
        query = select(func.count()).select_from(jobs).where(is_old(core, tx.now))
        return tx.connection.execute(query).scalar_one()


def expire_jobs(core: Core, beat: Callable[[], None]) -> int:
    """Remove old jobs with their builds and events, in short transactions; how many."""
    removed, last = 0, 0.0
    while ended := _expire_batch(core, last):
        removed, last = removed + len(ended), max(ended)
        beat()
    return removed


def _expire_batch(core: Core, since: float) -> Sequence[float]:
    """Remove some of the jobs that ended then or later; when these had ended. Going on where the
    last batch ended, each passes by the rows that others left behind in the index.
    """
    with core.writing() as tx:
        most = MANY if tx.connection.dialect.name == "postgresql" else BATCH
        old = select(jobs.c.id, jobs.c.finished_at).where(is_old(core, tx.now))
        oldest = old.where(jobs.c.finished_at >= since).order_by(jobs.c.finished_at).limit(most)
        rows = tx.connection.execute(oldest.with_for_update(skip_locked=True)).all()
        job_ids = [row.id for row in rows]
        for table in (events, builds):
            tx.connection.execute(delete(table).where(table.c.job_id.in_(job_ids)))
        tx.connection.execute(delete(jobs).where(jobs.c.id.in_(job_ids)))
    return [row.finished_at for row in rows]


def abandoned_uploads(core: Core, *, dry_run: bool) -> int:
    """Remove the uploads to this data folder that nobody has written to for `upload_s`; how
    many.
    """
    folder = core.settings.upload_dir
    names = []
    for path in folder.iterdir() if folder.is_dir() else ():
        with suppress(FileNotFoundError):  # it has just ended
            if path.stat().st_mtime < core.clock() - core.settings.upload_s:
                names.append(path.name)
                if not dry_run:
                    os.unlink(path)
    if not dry_run:
        reserving.expire(core, names)
    return len(names)


def corrupt_blobs(core: Core, *, dry_run: bool) -> int:
    """Remove the blobs that were set aside as corrupt longer ago than jobs are kept; how many."""
    days, blobs = core.settings.retention_days, core.store.blobs
    if not days:
        return 0
    before = core.clock() - days * 86400
    if dry_run:
        return sum(blob.touched < before for blob in blobs.quarantine())
    return blobs.clear_quarantine(before)

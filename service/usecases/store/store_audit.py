"""The audit: lists the store, and brings the rows of `catalog` into line with it."""

import re
from collections.abc import Callable, Collection
from itertools import islice

from sqlalchemy import ColumnElement, delete, func, select

from artifacts.parallel import call_many
from relaxd.contract.canonical import is_digest
from service.core import Core
from service.db.schema import blobs, jobs, store_records
from service.db.transaction import Transaction
from service.usecases import chores
from service.usecases.store import catalog, expiring
from service.usecases.store.catalog import BATCH, Row
from service.usecases.store.marking import ACTION, TAG

SHARDS = tuple(f"{number:02x}" for number in range(256))
"""The first two hexadecimal digits of digests."""
SETTLED_S = 600.0
"""A record that was written so shortly before an audit is read again by the next: stores tell times
in whole seconds, by clocks of their own.
"""
_ACTIONS = store_records.c.kind == ACTION
_BUNDLES = re.compile(r"[^/]+/bundles")
"""The repository of bundles of any tenant."""
_JOB_TAG = re.compile(r"job-([0-9a-f]{16})")

Beat = Callable[[], None]


def in_shard(digest: ColumnElement[str], first: str, last: str = "") -> ColumnElement[bool]:
    """The condition on digests that begin with two hexadecimal digits: these, or up to `last`."""
    end = int(last or first, 16) + 1
    after = f"{end:02x}" if end < len(SHARDS) else "g"
    return (digest >= f"sha256:{first}") & (digest < f"sha256:{after}")


def is_due(core: Core) -> bool:
    """True if the last audit began a grace period ago."""
    return chores.is_due(core, chores.AUDIT, core.settings.grace_s)


def run(core: Core, beat: Beat) -> None:
    """Note all blobs, tags and action records of the store, at the turn of a collection; raises
    StorageFailed, and then the audit does not count.
    """
    began = core.clock()
    compare(core, beat, chores.last_began(core, chores.AUDIT))
    chores.note_run(core, chores.AUDIT, began)


def compare(core: Core, beat: Beat, last: float = 0.0) -> None:
    """Do what `run` does, at no one's turn; `last` is when the last audit began."""
    count = _note_blobs(core, beat)
    if _is_more(catalog.count_blobs(core)[0], count):
        _forget_missing(core, beat)
    _note_tags(core)
    count = _note_actions(core, beat, last)
    with core.reading() as tx:
        rows = select(func.count()).select_from(store_records).where(_ACTIONS)
        known = tx.connection.execute(rows).scalar_one()
    if _is_more(known, count):
        _forget_gone_actions(core, beat)


def _is_more(known: int, listed: int) -> bool:
    """True if more have rows than what came during the listing may make it: rows too many do no
    harm, and to find them takes a look at each.
    """
    return known - listed > listed // 100


def _note_blobs(core: Core, beat: Beat) -> int:
    count, listed = 0, iter(core.store.blobs.listing())
    while part := list(islice(listed, BATCH)):
        beat()
        known = {b.digest: (b.size, b.touched) for b in part if is_digest(b.digest)}
        count += len(known)
        with core.writing() as tx:
            catalog.note_blobs(tx, known)
    return count


def _forget_missing(core: Core, beat: Beat) -> None:
    """Remove the rows of blobs that are not there: set aside as corrupt, or removed by a process
    that died.
    """
    for shard in SHARDS:
        beat()
        query = select(blobs.c.digest).where(in_shard(blobs.c.digest, shard))
        with core.reading() as tx:
            digests = tx.connection.scalars(query).all()
        looked_up = call_many(core.store.blobs.has, digests)
        missing = [digest for digest, is_there in looked_up if not is_there]
        for start in range(0, len(missing), BATCH):
            with core.writing() as tx:
                catalog.forget_blobs(tx, missing[start : start + BATCH], tx.now)


def _note_tags(core: Core) -> None:
    """Replace the rows of tags. Of those of jobs, which an earlier release wrote, only that of a
    job counts whose index is known by it alone.
    """
    counted, references = {None, *jobs_without_index(core)}, core.store.references
    names = [tag for tag in references.all_tags() if job_of(*tag) in counted]
    rows = [
        {"kind": TAG, "name": "/".join(name), "digest": digest, "written_at": 0.0}
        for name, digest in call_many(lambda name: references.resolve(*name), names)
        if digest
    ]
    with core.writing() as tx:
        tx.connection.execute(delete(store_records).where(store_records.c.kind == TAG))
        for start in range(0, len(rows), BATCH):
            _write_records(tx, rows[start : start + BATCH])


def job_of(repository: str, tag: str) -> str | None:
    """The job of which the tag names the index, as an earlier release wrote it."""
    match = _JOB_TAG.fullmatch(tag) if _BUNDLES.fullmatch(repository) else None
    return match[1] if match else None


def jobs_without_index(core: Core) -> set[str]:
    """The jobs of which the database does not have the index: an earlier release made it."""
    with core.reading() as tx:
        unnoted = ~expiring.is_old(core, tx.now) & jobs.c.index_digest.is_(None)
        return set(tx.connection.scalars(select(jobs.c.id).where(unnoted)))


def untag_lost_jobs(core: Core, *, dry_run: bool) -> int:
    """Remove the tags that an earlier release wrote, of jobs that are no more; how many."""
    references = core.store.references
    # A job is there before its tag: whoever has a tag here and no job has lost it.
    tags = [tag for tag in references.all_tags() if job_of(*tag)]
    with core.reading() as tx:
        recent = ~expiring.is_old(core, tx.now)
        living = set(tx.connection.scalars(select(jobs.c.id).where(recent))) if tags else set()
    lost = [tag for tag in tags if job_of(*tag) not in living]
    for repository, tag in lost if not dry_run else ():
        if digest := references.resolve(repository, tag):
            references.untag(repository, tag, digest)
    return len(lost)


def _note_actions(core: Core, beat: Beat, last: float) -> int:
    """Note the action records that are not known, or may have changed; how many there are."""
    actions = core.store.actions
    count, listed = 0, (entry for entry in actions.listing() if is_digest(entry[0]))
    while part := dict(islice(listed, BATCH)):
        beat()
        count += len(part)
        query = select(store_records.c.name, store_records.c.written_at)
        of_part = _ACTIONS & store_records.c.name.in_(part)
        with core.reading() as tx:
            known = {
                row.name: row.written_at for row in tx.connection.execute(query.where(of_part))
            }
        new = [
            key
            for key, written in part.items()
            if known.get(key) != written or written > last - SETTLED_S
        ]
        rows = [
            {"kind": ACTION, "name": key, "digest": digest, "written_at": part[key]}
            for key, digest in call_many(actions.look_up, new)
            if digest
        ]
        with core.writing() as tx:
            _write_records(tx, rows)
    return count


def _write_records(tx: Transaction, rows: list[Row]) -> None:
    if rows:
        added = catalog.insert_into(tx, store_records, rows)
        values = {name: added.excluded[name] for name in ("digest", "written_at")}
        keys = list(store_records.primary_key.columns)
        tx.connection.execute(added.on_conflict_do_update(index_elements=keys, set_=values))


def _forget_gone_actions(core: Core, beat: Beat) -> None:
    """Remove the rows of action records that are not there."""
    for shard in SHARDS:
        beat()
        listed = {key for key, _ in core.store.actions.listing(shard)}
        query = select(store_records.c.name).where(_ACTIONS, in_shard(store_records.c.name, shard))
        with core.reading() as tx:
            gone = sorted(set(tx.connection.scalars(query)) - listed)
        for start in range(0, len(gone), BATCH):
            part = store_records.c.name.in_(gone[start : start + BATCH])
            with core.writing() as tx:
                tx.connection.execute(delete(store_records).where(_ACTIONS, part))


def forget_lost_referrers(
    core: Core, before: float, *, gone: Collection[str] = (), dry_run: bool = False
) -> int:
    """Remove the records of referrers that are not in the store, and were not written since
    `before`; how many. `gone` are those of which it is known.
    """
    listed = (entry for entry in core.store.references.all_referrers() if entry[3] < before)
    count = 0
    while part := list(islice(listed, BATCH)):
        digests = {digest for _, _, digest, _ in part}
        query = select(blobs.c.digest).where(blobs.c.digest.in_(digests - set(gone)))
        with core.reading() as tx:
            unknown = digests - set(gone) - set(tx.connection.scalars(query))
        looked_up = call_many(core.store.blobs.has, unknown)
        lost = {*gone, *(digest for digest, is_there in looked_up if not is_there)}
        for repository, subject, digest, _ in part:
            if digest in lost:
                count += 1
                if not dry_run:
                    _forget_referrer(core, repository, subject, digest)
    return count


def _forget_referrer(core: Core, repository: str, subject: str, digest: str) -> None:
    references = core.store.references
    references.forget(repository, subject, digest)
    references.forget_descriptor(digest)
    # Whoever wrote it again before the removal has put the blob before.
    if core.store.blobs.has(digest):
        references.refer(repository, subject, digest)

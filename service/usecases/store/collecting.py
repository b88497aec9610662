"""Garbage collection: which blobs the service needs, and the removal of all others.

One rule makes this safe beside uploads, pulls and builds: whoever creates a reference to a blob (a
manifest's layer, a tag, a job, a pin, an action record) first puts or touches the blob, and creates
the reference only if that succeeded. To touch a manifest is enough for what it refers to, which is
kept as long as the manifest. A collection then works in this order:

1. Fix `before`, its start less the grace period: blobs that are touched later stay.
2. List the store where the last audit began before that (`store_audit`), and read what is new
   (`catalog`). So every manifest that was put before `before` is known, with what it refers to.
3. Mark in the database what no root and no younger blob keeps (`marking`). Manifests among it that
   were touched in the store since `before` are spared, with what they keep.
4. Remove what is marked, by any number of processes (`sweeping`): each blob by
   `BlobStore.discard_many`, which spares one that was touched since `before`, once nothing that
   refers to it is left, and before it the action records that name it.

A reference that was there in step 3 has kept its blobs. One that came later was preceded by a
touch, which step 4 sees, or which came after the removal and failed. A manifest that step 2 missed
was put since `before`, and so were or were touched the blobs that it refers to. That leaves whoever
pauses between touch and reference for longer than the grace period: it has to exceed the longest
build.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import replace

import structlog

from service.core import Core
from service.db import recovery
from service.db.schema import STORE_BYTES
from service.domain import Collection, Sweep
from service.usecases import auditing, chores, counting
from service.usecases.store import (
    catalog,
    expiring,
    marking,
    pinning,
    store_audit,
    sweeping,
)
from service.usecases.webhooks import hooks

logger = structlog.get_logger("relaxd.gc")


def run(
    core: Core, *, dry_run: bool = False, check: Callable[[], None] = lambda: None
) -> Collection:
    """Expire jobs, pins and uploads, and remove what nothing needs any more; safe beside everything
    else, and possible on a full disk. `check` is called between steps and may raise to end early.
    Raises ChoreTaken while another process collects, StorageFailed, DatabaseUnavailable.
    """
    if dry_run:
        return _plan(core)
    with recovery.borrow(core.settings), chores.turn(core, chores.GC) as turn:

        def beat() -> None:
            check()
            turn.renew()

        done = _run(core, beat, turn.renew_beside)
    logger.info(
        "garbage collected",
        removed_blobs=done.removed_blobs,
        removed_bytes=done.removed_bytes,
        expired_jobs=done.expired_jobs,
    )
    return done


def is_due(core: Core) -> bool:
    """True if the settings ask for a collection now."""
    every_s = core.settings.gc_s
    return every_s > 0 and chores.is_due(core, chores.GC, every_s)


def is_sweeping(core: Core) -> bool:
    """True if a collection has marked what it removes, so that `help_sweep` has something to do."""
    return sweeping.current(core) is not None


def _run(
    core: Core, beat: Callable[[], None], beside: Callable[[], AbstractContextManager[None]]
) -> Collection:
    """Collect, or go on with what a process that died has begun."""
    known, is_audited = counting.value_of(core, STORE_BYTES), False
    expired = untagged = 0
    sweep = sweeping.current(core)
    if sweep is None:
        pinning.expire(core)
        auditing.expire(core)
        hooks.expire(core)
        expired = expiring.expire_jobs(core, beat)
        limits = _limits(core)
        if is_audited := store_audit.is_due(core):
            untagged = store_audit.untag_lost_jobs(core, dry_run=False)
            store_audit.run(core, beat)
        catalog.read_new(core, beat)
        sweep = replace(limits, began_at=core.clock())
        with beside():
            sweeping.begin(core, sweep, beat)
    number, size = catalog.count_blobs(core)
    mine = sweeping.work(core, sweep, beat, wait=True)
    removed, records = sweeping.end(core)
    if is_audited:
        records += store_audit.forget_lost_referrers(core, sweep.before)
    of_others = removed.keys() - set(mine)
    done = Collection(
        dry_run=False,
        blobs=number,
        bytes=size,
        removed_blobs=len(removed),
        removed_bytes=sum(removed.values()),
        removed_records=records,
        removed_tags=untagged,
        expired_jobs=expired,
        expired_uploads=expiring.abandoned_uploads(core, dry_run=False),
        expired_corrupt=expiring.corrupt_blobs(core, dry_run=False),
        removed=(*mine, *sorted(of_others)),
    )
    _count(core, done, known if is_audited else size)
    return done


def _plan(core: Core) -> Collection:
    """Say what a collection would remove."""
    limits = _limits(core)
    expired = expiring.count_old_jobs(core)
    untagged = store_audit.untag_lost_jobs(core, dry_run=True)
    store_audit.compare(core, lambda: None)
    catalog.read_new(core, lambda: None)
    limits = replace(limits, began_at=core.clock())
    number, size = catalog.count_blobs(core)
    garbage = marking.list_garbage(core, limits)
    records = marking.count_records(core, limits, garbage)
    records += store_audit.forget_lost_referrers(core, limits.before, gone=garbage, dry_run=True)
    return Collection(
        dry_run=True,
        blobs=number,
        bytes=size,
        removed_blobs=len(garbage),
        removed_bytes=sum(garbage.values()),
        removed_records=records,
        removed_tags=untagged,
        expired_jobs=expired,
        expired_uploads=expiring.abandoned_uploads(core, dry_run=True),
        expired_corrupt=expiring.corrupt_blobs(core, dry_run=True),
        removed=tuple(garbage),
    )


def _limits(core: Core) -> Sweep:
    """The limits of a collection that begins now. They are taken before it is asked whether an
    audit is due: what the last one did not list is younger.
    """
    now, days = core.clock(), core.settings.retention_days
    return Sweep(now, now - core.settings.grace_s, now - days * 86400 if days else 0)


def _count(core: Core, done: Collection, known: int) -> None:
    # What was added to the estimate since `known` was read stays in it.
    counting.add(
        core,
        store_bytes=done.bytes - done.removed_bytes - known,
        removed_bytes=done.removed_bytes,
        removed_blobs=done.removed_blobs,
        expired_jobs=done.expired_jobs,
    )


def roots(core: Core) -> Iterator[str]:
    """Digests of what is needed: tags, pins, registered versions, and the models, samples, bundles
    and reproducers of jobs.
    """
    # First: a job is there before its tag.
    tags = list(core.store.references.all_tags())
    with core.reading() as tx:
        queries = marking.root_queries(core, tx.now)
        digests = {digest for query in queries for digest in tx.connection.scalars(query) if digest}
    yield from digests
    unknown = store_audit.jobs_without_index(core)
    for tag in tags:
        job = store_audit.job_of(*tag)
        if job is None or job in unknown:
            yield from filter(None, [core.store.references.resolve(*tag)])

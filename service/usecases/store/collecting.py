"""Garbage collection: which blobs the service needs, and the removal of all others."""

import re
from collections.abc import Callable, Iterator

import structlog
from sqlalchemy import select

from artifacts.collection import Limits, Report, collect
from service.core import Core
from service.db import recovery
from service.db.schema import STORE_BYTES, builds, jobs, model_versions
from service.domain import Collection
from service.usecases import auditing, chores, counting
from service.usecases.store import expiring, holdings, pinning
from service.usecases.webhooks import hooks

_BUNDLES = re.compile(r"[^/]+/bundles")
"""The repository of bundles of any tenant."""
_JOB_TAG = re.compile(r"job-([0-9a-f]{16})")

logger = structlog.get_logger("relaxd.gc")


def run(
    core: Core, *, dry_run: bool = False, check: Callable[[], None] = lambda: None
) -> Collection:
    """Expire jobs, pins and uploads, and remove what nothing needs any more; safe beside everything
    else, and possible on a full disk. `check` is called between steps and may raise to end early.
    Raises ChoreTaken while another process collects, StorageFailed, DatabaseUnavailable.
    """
    if dry_run:
        return _run(core, check, dry_run=True)
    with recovery.borrow(core.settings), chores.turn(core, chores.GC) as turn:

        def beat() -> None:
            check()
            turn.renew()

        done = _run(core, beat, dry_run=False)
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


def _run(core: Core, beat: Callable[[], None], *, dry_run: bool) -> Collection:
    known = counting.value_of(core, STORE_BYTES)
    if dry_run:
        expired = expiring.count_old_jobs(core)
    else:
        pinning.expire(core)
        auditing.expire(core)
        hooks.expire(core)
        expired = expiring.expire_jobs(core, beat)
    untagged = _untag_lost_jobs(core, dry_run=dry_run)
    began = core.clock()
    report = collect(core.store, lambda: roots(core), _limits(core), dry_run=dry_run, beat=beat)
    uploads = expiring.abandoned_uploads(core, dry_run=dry_run)
    corrupt = expiring.corrupt_blobs(core, dry_run=dry_run)
    if not dry_run:
        holdings.release(core, report.removed, began)
        _count(core, report, expired, known)
    return Collection(
        dry_run=dry_run,
        blobs=report.blobs,
        bytes=report.bytes,
        removed_blobs=report.removed_blobs,
        removed_bytes=report.removed_bytes,
        removed_records=report.removed_records,
        removed_tags=untagged,
        expired_jobs=expired,
        expired_uploads=uploads,
        expired_corrupt=corrupt,
        removed=tuple(report.removed),
    )


def _limits(core: Core) -> Limits:
    now, days = core.clock(), core.settings.retention_days
    return Limits(now - core.settings.grace_s, now - days * 86400 if days else 0)


def _count(core: Core, report: Report, expired: int, known: int) -> None:
    # What was added to the estimate since `known` was read stays in it.
    counting.add(
        core,
        store_bytes=report.bytes - report.removed_bytes - known,
        removed_bytes=report.removed_bytes,
        removed_blobs=report.removed_blobs,
        expired_jobs=expired,
    )


def roots(core: Core) -> Iterator[str]:
    """Digests of what is needed: tags, pins, registered versions, and the models, samples, bundles
    and reproducers of jobs.
    """
    for pin in pinning.list_pins(core):
        yield pin.digest
    with core.reading() as tx:
        registered = list(tx.connection.scalars(select(model_versions.c.digest).distinct()))
    yield from registered
    # First: a job is there before its tag.
    tags = list(core.store.references.all_tags())
    with core.reading() as tx:
        recent = ~expiring.is_old(core, tx.now)
        of_jobs = builds.join(jobs, builds.c.job_id == jobs.c.id)
        artifact = builds.c.artifact["digest"].as_string()
        reproducer = builds.c.error["details"]["reproducer"]["digest"].as_string()
        needed = [
            select(jobs.c.model).where(recent).distinct(),
            select(jobs.c.index_digest).where(recent).distinct(),
            select(jobs.c.request["samples"].as_string()).where(recent).distinct(),
            select(artifact).select_from(of_jobs).where(recent).distinct(),
            select(reproducer).select_from(of_jobs).where(recent).distinct(),
        ]
        digests = {digest for query in needed for digest in tx.connection.scalars(query) if digest}
        # Of the others, an earlier release made the index: the tag alone names it.
        unnoted = recent & jobs.c.index_digest.is_(None)
        unknown = set(tx.connection.scalars(select(jobs.c.id).where(unnoted)))
    yield from digests
    for repository, tag in tags:
        job = _job_of(repository, tag)
        if job is None or job in unknown:
            yield from filter(None, [core.store.references.resolve(repository, tag)])


def _untag_lost_jobs(core: Core, *, dry_run: bool) -> int:
    """Remove the tags that an earlier release wrote, of jobs that are no more; how many."""
    references = core.store.references
    # A job is there before its tag: whoever has a tag here and no job has lost it.
    tags = [entry for entry in references.all_tags() if _job_of(*entry)]
    with core.reading() as tx:
        recent = ~expiring.is_old(core, tx.now)
        living = set(tx.connection.scalars(select(jobs.c.id).where(recent)))
    lost = [(repository, tag) for repository, tag in tags if _job_of(repository, tag) not in living]
    for repository, tag in lost if not dry_run else ():
        if digest := references.resolve(repository, tag):
            references.untag(repository, tag, digest)
    return len(lost)


def _job_of(repository: str, tag: str) -> str | None:
    match = _JOB_TAG.fullmatch(tag) if _BUNDLES.fullmatch(repository) else None
    return match[1] if match else None

"""Marking: which blobs nothing needs, found in the database by one statement."""

from collections.abc import Collection

from sqlalchemy import CTE, Select, delete, exists, insert, or_, select, union

from service.core import Core
from service.db.schema import (
    blobs,
    builds,
    edges,
    garbage,
    holdings,
    jobs,
    model_versions,
    pins,
    store_records,
)
from service.domain import Sweep
from service.usecases.store import expiring
from service.usecases.store.holdings import IS_OPEN

TAG, ACTION = "tag", "action"
"""Kinds of rows of `records`: by repository and tag, and by the digest of an action key."""


def root_queries(core: Core, now: float) -> list[Select[str]]:
    """Queries of digests that the database needs: pins, registered versions, and the models,
    samples, bundles, indexes and reproducers of jobs; some are NULL.
    """
    recent = ~expiring.is_old(core, now)
    of_jobs = builds.join(jobs, builds.c.job_id == jobs.c.id)
    artifact = builds.c.artifact["digest"].as_string()
    reproducer = builds.c.error["details"]["reproducer"]["digest"].as_string()
    lasting = or_(pins.c.expires_at.is_(None), pins.c.expires_at > now)
    return [
        select(pins.c.digest).where(lasting),
        select(model_versions.c.digest),
        select(jobs.c.model).where(recent),
        select(jobs.c.index_digest).where(recent),
        select(jobs.c.request["samples"].as_string()).where(recent),
        select(artifact).select_from(of_jobs).where(recent),
        select(reproducer).select_from(of_jobs).where(recent),
    ]


def list_garbage(core: Core, limits: Sweep) -> dict[str, int]:
    """Sizes of the blobs that nothing needs, by digest."""
    with core.reading() as tx:
        rows = tx.connection.execute(_garbage(core, limits))
        return {row.digest: row.size for row in rows}


def count_records(core: Core, limits: Sweep, digests: Collection[str]) -> int:
    """How many old action records name one of the blobs."""
    old = (store_records.c.kind == ACTION) & (store_records.c.written_at < limits.records_before)
    with core.reading() as tx:
        named = tx.connection.scalars(select(store_records.c.digest).where(old))
        return sum(digest in digests for digest in named)


def mark(core: Core, limits: Sweep) -> None:
    """Write what nothing needs to the table `garbage`."""
    with core.writing() as tx:
        tx.connection.execute(delete(garbage))
        query = _garbage(core, limits)
        tx.connection.execute(insert(garbage).from_select(["digest", "size"], query))


def _garbage(core: Core, limits: Sweep) -> Select[str, int]:
    """Blobs that were not touched since `before`, and that no root and no younger blob keeps."""
    is_kept = (store_records.c.kind == TAG) | (store_records.c.written_at >= limits.records_before)
    named = select(store_records.c.digest).where(is_kept)
    needed = _reach(*root_queries(core, limits.began_at), named, _young(limits))
    beside = blobs.outerjoin(needed, needed.c.digest == blobs.c.digest)
    return (
        select(blobs.c.digest, blobs.c.size)
        .select_from(beside)
        .where(blobs.c.touched_at < limits.before, needed.c.digest.is_(None))
    )


def spare_young(core: Core, limits: Sweep) -> None:
    """Take from `garbage` what blobs keep that turned out to be touched since `before`."""
    needed = _reach(_young(limits))
    with core.writing() as tx:
        spared = garbage.c.digest.in_(select(needed.c.digest))
        tx.connection.execute(delete(garbage).where(spared))


def _young(limits: Sweep) -> Select[str]:
    return select(blobs.c.digest).where(blobs.c.touched_at >= limits.before)


def _reach(*roots: Select[str]) -> CTE:
    """The digests of the queries, and all that they keep."""
    named = union(*roots).subquery()
    (digest,) = named.columns
    first = select(digest.label("digest")).where(digest.is_not(None))
    needed = first.cte("needed", recursive=True)
    # A referrer that nobody may read was a deleted tenant's.
    is_held = exists().where(holdings.c.digest == edges.c.child)
    keeps = or_(~edges.c.is_referrer, is_held, IS_OPEN)
    reached = select(edges.c.child).join(needed, edges.c.parent == needed.c.digest).where(keeps)
    return needed.union(reached)

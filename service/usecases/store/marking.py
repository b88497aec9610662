"""Marking: which blobs nothing needs, found in the database.

What is needed is written to a temporary table, level by level, by statements whose joins and sorts
the server does on disk: a recursive query would hold millions of digests in memory. Each statement
sees what was committed before it. That does no harm: all roots are read by one, and whoever refers
to a blob later has touched it (`collecting`).
"""

from collections.abc import Collection, Iterator
from contextlib import contextmanager

from sqlalchemy import (
    Column,
    Integer,
    MetaData,
    Select,
    String,
    Table,
    delete,
    exists,
    insert,
    literal,
    or_,
    select,
    text,
    union,
)
from sqlalchemy.schema import CreateTable, DropTable

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
from service.db.transaction import Transaction
from service.domain import Sweep
from service.usecases.store import expiring
from service.usecases.store.holdings import IS_OPEN

TAG, ACTION = "tag", "action"
"""Kinds of rows of `records`: by repository and tag, and by the digest of an action key."""

_NEEDED = Table(
    "needed",
    MetaData(),
    Column("digest", String(80), nullable=False),
    Column("depth", Integer, nullable=False),
    prefixes=["TEMPORARY"],
)


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
        select(reproducer).select_from(of_jobs).where(recent, builds.c.error.is_not(None)),
    ]


def list_garbage(core: Core, limits: Sweep) -> dict[str, int]:
    """Sizes of the blobs that nothing needs, by digest."""
    with core.reading() as tx, needed_blobs(tx, *_roots(core, limits)) as needed:
        rows = tx.connection.execute(_garbage(needed, limits))
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
        with needed_blobs(tx, *_roots(core, limits)) as needed:
            query = _garbage(needed, limits)
            tx.connection.execute(insert(garbage).from_select(["digest", "size"], query))


def _roots(core: Core, limits: Sweep) -> list[Select[str]]:
    """Queries of what keeps all that is needed: roots of the database, records, younger blobs."""
    is_kept = (store_records.c.kind == TAG) | (store_records.c.written_at >= limits.records_before)
    named = select(store_records.c.digest).where(is_kept)
    return [*root_queries(core, limits.began_at), named, _young(limits)]


def _garbage(needed: Table, limits: Sweep) -> Select[str, int]:
    """Blobs that were not touched since `before` and are not needed."""
    beside = blobs.outerjoin(needed, needed.c.digest == blobs.c.digest)
    return (
        select(blobs.c.digest, blobs.c.size)
        .select_from(beside)
        .where(blobs.c.touched_at < limits.before, needed.c.digest.is_(None))
    )


def spare_young(core: Core, limits: Sweep) -> None:
    """Take from `garbage` what blobs keep that turned out to be touched since `before`."""
    with core.writing() as tx, needed_blobs(tx, _young(limits)) as needed:
        spared = garbage.c.digest.in_(select(needed.c.digest))
        tx.connection.execute(delete(garbage).where(spared))


def _young(limits: Sweep) -> Select[str]:
    return select(blobs.c.digest).where(blobs.c.touched_at >= limits.before)


@contextmanager
def needed_blobs(tx: Transaction, *roots: Select[str]) -> Iterator[Table]:
    """A table of the digests of the queries, and of all that they keep, while the block lasts."""
    tx.connection.execute(DropTable(_NEEDED, if_exists=True))
    tx.connection.execute(CreateTable(_NEEDED))
    (digest,) = union(*roots).subquery().columns
    level = select(digest, literal(0)).where(digest.is_not(None))
    depth = 0
    while _insert(tx, level):
        if tx.connection.dialect.name == "postgresql":
            tx.connection.execute(text(f"ANALYZE {_NEEDED}"))
        level, depth = _next_level(depth), depth + 1
    yield _NEEDED
    tx.connection.execute(DropTable(_NEEDED))


def _insert(tx: Transaction, level: Select[str, int]) -> int:
    """Add a level to the table; how many rows it has."""
    added = insert(_NEEDED).from_select(["digest", "depth"], level)
    return tx.connection.execute(added.execution_options(preserve_rowcount=True)).rowcount


def _next_level(depth: int) -> Select[str, int]:
    """The digests that those of that depth keep, but for those in the table. Planners take an outer
    join with the table in place of EXCEPT for one row, and then join the rest row by row.
    """
    # A referrer that nobody may read was a deleted tenant's.
    is_held = exists().where(holdings.c.digest == edges.c.child)
    keeps = or_(~edges.c.is_referrer, is_held, IS_OPEN)
    joined = edges.join(_NEEDED, edges.c.parent == _NEEDED.c.digest)
    children = select(edges.c.child).select_from(joined).where(_NEEDED.c.depth == depth, keeps)
    (child,) = children.except_(select(_NEEDED.c.digest)).subquery().columns
    return select(child, literal(depth + 1))

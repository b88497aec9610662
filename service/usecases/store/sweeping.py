"""Sweeping: removes what is marked, by any number of processes at once.

Each takes a shard of `garbage` at a time, by a lease. A blob's turn comes once no row of a blob
that refers to it is left, so that no moment, nor a crash, shows a manifest without its layers, and
what a spared manifest refers to is spared too. What was tried is noted row by row: whoever takes a
shard over goes on there.
"""

import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial

from sqlalchemy import ColumnElement, Row, bindparam, delete, exists, func, insert, select, update

from artifacts.parallel import call_many
from artifacts.store import BlobStore
from service.core import Core
from service.db.schema import blobs, edges, garbage, store_records, sweeps
from service.domain import Sweep
from service.errors import ChoreTaken
from service.usecases import chores
from service.usecases.store import catalog, holdings, marking
from service.usecases.store.store_audit import SHARDS, in_shard

PAGE = 256
"""Blobs that are removed together."""
MANY = 8 * PAGE
"""Blobs that a shard has at the least: a short page takes as many requests after another as a long
one.
"""
POLL_S = 0.2

Beat = Callable[[], None]
Shard = tuple[str, ...]
"""Beginnings of digests, in order."""


def current(core: Core) -> Sweep | None:
    """The sweep that is under way; None where nothing is marked."""
    with core.reading() as tx:
        row = tx.connection.execute(select(sweeps)).one_or_none()
    return Sweep(row.began_at, row.before, row.records_before) if row else None


def begin(core: Core, sweep: Sweep, beat: Beat) -> None:
    """Mark, and let all processes sweep what is marked."""
    marking.mark(core, sweep)
    beat()
    _look_again(core, sweep, beat)
    with core.writing() as tx:
        values = {"before": sweep.before, "records_before": sweep.records_before}
        values |= {"began_at": sweep.began_at, "removed_records": 0}
        tx.connection.execute(insert(sweeps).values(values))


def _look_again(core: Core, sweep: Sweep, beat: Beat) -> None:
    """Spare the marked manifests that were touched since `before`, of which the rows need not know,
    with all that they keep: a referrer would go before its subject is tried.
    """
    is_parent = exists().where(edges.c.parent == garbage.c.digest)
    with core.reading() as tx:
        digests = tx.connection.scalars(select(garbage.c.digest).where(is_parent)).all()
    young = []
    for digest, touched in call_many(core.store.blobs.last_touch, sorted(digests)):
        beat()
        if touched is not None and touched >= sweep.before:
            young.append({"of": digest, "touched": touched})
    if young:
        touch = update(blobs).where(blobs.c.digest == bindparam("of"))
        with core.writing() as tx:
            tx.connection.execute(touch.values(touched_at=bindparam("touched")), young)
        marking.spare_young(core, sweep)


def end(core: Core) -> tuple[dict[str, int], int]:
    """End the sweep; the sizes of what was removed by digest, and the number of records that were
    removed.
    """
    with core.writing() as tx:
        rows = tx.connection.execute(select(garbage).where(garbage.c.is_removed))
        removed = {row.digest: row.size for row in rows}
        records = tx.connection.execute(select(sweeps.c.removed_records)).scalar_one()
        for table in (garbage, sweeps):
            tx.connection.execute(delete(table))
    return removed, records


def help_sweep(core: Core, beat: Beat) -> int:
    """Sweep as long as there is a shard that no other process has; how many blobs were removed."""
    sweep = current(core)
    return len(work(core, sweep, beat, wait=False)) if sweep else 0


def work(core: Core, sweep: Sweep, beat: Beat, *, wait: bool) -> list[str]:
    """Sweep shard by shard until nothing is left, or without `wait` until others have what is; what
    this process has removed. Raises StorageFailed.
    """
    removed: list[str] = []
    while shards := _shards(core):
        random.shuffle(shards)
        tried = [_take(core, sweep, shard, beat, removed) for shard in shards]
        if not any(tried):
            if not (wait and _is_any_next(core, sweep)):
                break
            beat()
            time.sleep(POLL_S)
    return removed


def _shards(core: Core) -> list[Shard]:
    """Those with blobs that were not tried: the fewer are marked, the fewer shards there are."""
    begun = select(func.substr(garbage.c.digest, 8, 2)).where(garbage.c.is_removed.is_(None))
    with core.reading() as tx:
        prefixes = list(tx.connection.scalars(begun.distinct()))
        marked = tx.connection.execute(select(func.count()).select_from(garbage)).scalar_one()
    width = len(SHARDS)
    while width > 1 and marked * width >= 2 * MANY * len(SHARDS):
        width //= 2
    starts = {int(prefix, 16) // width * width for prefix in prefixes}
    return [SHARDS[start : start + width] for start in starts]


def _is_referred_to() -> ColumnElement[bool]:
    """The condition on marked blobs to which a blob refers that is not removed."""
    parent = blobs.alias()
    return exists().where(
        edges.c.child == garbage.c.digest, ~edges.c.is_referrer, parent.c.digest == edges.c.parent
    )


def _is_untried(sweep: Sweep) -> ColumnElement[bool]:
    """The condition on marked blobs that this sweep, and no later one, has not tried."""
    is_under_way = exists().where(sweeps.c.began_at == sweep.began_at)
    return garbage.c.is_removed.is_(None) & is_under_way


def _is_any_next(core: Core, sweep: Sweep) -> bool:
    """True if there is a blob whose turn it is."""
    is_next = exists().where(_is_untried(sweep), ~_is_referred_to())
    with core.reading() as tx:
        return bool(tx.connection.execute(select(is_next)).scalar_one())


def _take(core: Core, sweep: Sweep, shard: Shard, beat: Beat, removed: list[str]) -> int:
    """Sweep the shard once unless another process has it; how many blobs were tried."""
    name, tried = f"{chores.GC}-{shard[0]}", 0
    try:
        with chores.turn(core, name) as turn:
            for page in _pages(core, sweep, shard):
                beat()
                turn.renew()
                removed += _remove(core, sweep, page)
                tried += len(page)
    except ChoreTaken as error:
        if error.name != name:
            raise
    return tried


def _pages(core: Core, sweep: Sweep, shard: Shard) -> Iterator[list[str]]:
    """The shard's blobs whose turn it is, each looked at once."""
    last, page = "", list[str]()
    while rows := _look_up(core, sweep, shard, last):
        for last, is_referred_to in rows:
            if is_referred_to:
                continue
            page.append(last)
            if len(page) == PAGE:
                yield page
                page = []
    if page:
        yield page


def _look_up(core: Core, sweep: Sweep, shard: Shard, after: str) -> Sequence[Row[str, bool]]:
    """Some of the shard's blobs that were not tried, in order, and whether others refer to them.
    A query for those that none refers to would look at all that come before on each page.
    """
    of_shard = in_shard(garbage.c.digest, shard[0], shard[-1]) & (garbage.c.digest > after)
    query = select(garbage.c.digest, _is_referred_to()).where(of_shard, _is_untried(sweep))
    with core.reading() as tx:
        return tx.connection.execute(query.order_by(garbage.c.digest).limit(PAGE)).all()


def _remove(core: Core, sweep: Sweep, page: list[str]) -> list[str]:
    """Remove blobs that nothing refers to, their records first; those that are gone."""
    store: BlobStore = core.store.blobs
    write_again = _forget_actions(core, sweep, page)
    gone = store.discard_many(page, sweep.before)
    spared = [digest for digest in page if digest not in gone]
    restored = [key for digest in spared for key in write_again.get(digest, {})]
    for digest in spared:
        for restore in write_again.get(digest, {}).values():
            restore()
    missing = holdings.release(core, gone, sweep.began_at)
    with core.writing() as tx:
        catalog.lock_blobs(tx, page)
        catalog.forget_blobs(tx, missing, sweep.before)
        now = update(blobs).where(blobs.c.digest.in_(spared))
        tx.connection.execute(now.values(touched_at=tx.now))
        for digests, is_removed in ((gone, True), (spared, False)):
            tried = update(garbage).where(garbage.c.digest.in_(digests))
            tx.connection.execute(tried.values(is_removed=is_removed))
        keys = {key for restores in write_again.values() for key in restores} - set(restored)
        forgotten = (store_records.c.kind == marking.ACTION) & store_records.c.name.in_(keys)
        tx.connection.execute(delete(store_records).where(forgotten))
        more = sweeps.c.removed_records + len(keys)
        tx.connection.execute(update(sweeps).values(removed_records=more))
    return [digest for digest in page if digest in gone]


def _forget_actions(
    core: Core, sweep: Sweep, page: list[str]
) -> Mapping[str, dict[str, Callable[[], object]]]:
    """Remove the action records of the manifests; by manifest and key, what writes a record again:
    whoever did so before the removal has touched the manifest before.
    """
    actions = core.store.actions
    old = store_records.c.digest.in_(page) & (store_records.c.kind == marking.ACTION)
    query = select(store_records.c.name, store_records.c.digest).where(
        old, store_records.c.written_at < sweep.records_before
    )
    with core.reading() as tx:
        rows = tx.connection.execute(query).all()
    restores: dict[str, dict[str, Callable[[], object]]] = {}
    forgotten = call_many(lambda row: actions.forget(row.name, row.digest), rows)
    for row, was_there in forgotten:
        if was_there:
            write = partial(actions.put, row.name, row.digest)
            restores.setdefault(row.digest, {})[row.name] = write
    return restores

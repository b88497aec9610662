"""Sweeping: removes what is marked, by any number of processes at once.

Each takes a shard of `garbage` at a time, by a lease. A blob's turn comes once no row of a blob
that refers to it is left, so that no moment, nor a crash, shows a manifest without its layers, and
what a spared manifest refers to is spared too. What was tried is noted row by row: whoever takes a
shard over goes on there.
"""

import random
import time
from collections.abc import Callable, Mapping
from functools import partial

from sqlalchemy import ColumnElement, bindparam, delete, exists, func, insert, select, update

from artifacts.parallel import call_many
from artifacts.store import BlobStore
from service.core import Core
from service.db.schema import blobs, edges, garbage, store_records, sweeps
from service.domain import Sweep
from service.errors import ChoreTaken
from service.usecases import chores
from service.usecases.store import catalog, holdings, marking
from service.usecases.store.store_audit import ALL, SHARDS, in_shard

PAGE = 256
"""Blobs that are removed together."""
FEW = 8 * PAGE
POLL_S = 0.2

Beat = Callable[[], None]


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
    while shards := _shards(core, sweep):
        random.shuffle(shards)
        took = [_take(core, sweep, shard, beat, removed) for shard in shards]
        if not any(took):
            if not wait:
                break
            beat()
            time.sleep(POLL_S)
    return removed


def _shards(core: Core, sweep: Sweep) -> list[str]:
    """Those with blobs whose turn it is; of few blobs, one for all."""
    query = select(func.substr(garbage.c.digest, 8, 2)).where(_is_next(sweep)).distinct()
    with core.reading() as tx:
        shards = list(tx.connection.scalars(query))
        marked = tx.connection.execute(select(func.count()).select_from(garbage)).scalar_one()
    return shards if marked > FEW else [ALL] * bool(shards)


def _is_next(sweep: Sweep) -> ColumnElement[bool]:
    """The condition on marked blobs that are to be removed now, by that sweep and no later one."""
    parent, is_under_way = blobs.alias(), exists().where(sweeps.c.began_at == sweep.began_at)
    is_referred_to = exists().where(
        edges.c.child == garbage.c.digest, ~edges.c.is_referrer, parent.c.digest == edges.c.parent
    )
    return garbage.c.is_removed.is_(None) & is_under_way & ~is_referred_to


def _take(core: Core, sweep: Sweep, shard: str, beat: Beat, removed: list[str]) -> bool:
    """Sweep the shard unless another process has it; whether it was ours."""
    name = f"{chores.GC}-{shard or SHARDS[0]}"
    try:
        with chores.turn(core, name) as turn:
            while page := _page(core, sweep, shard):
                beat()
                turn.renew()
                removed += _remove(core, sweep, page)
    except ChoreTaken as error:
        if error.name != name:
            raise
        return False
    return True


def _page(core: Core, sweep: Sweep, shard: str) -> list[str]:
    query = select(garbage.c.digest).where(in_shard(garbage.c.digest, shard), _is_next(sweep))
    with core.reading() as tx:
        return list(tx.connection.scalars(query.order_by(garbage.c.digest).limit(PAGE)))


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

"""The rows by which collections work: which blobs there are, what each refers to, and which records
name them.

They are written with holdings and by audits, which list the store. Whoever stores a manifest
touches what it refers to, and an audit begins at least once in each grace period: so every manifest
that is older than that has a row, and a collection knows what it keeps (`collecting`).
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from itertools import islice
from typing import Any

from sqlalchemy import Table, delete, func, select, update
from sqlalchemy.dialects import postgresql, sqlite

from artifacts.documents import MAX_MANIFEST, Document, parse
from artifacts.errors import BlobCorrupt, BlobNotFound, InvalidManifest
from artifacts.parallel import call_many
from artifacts.store import FRESH_S, BlobStore
from service.core import Core
from service.db.schema import blobs, edges
from service.db.transaction import Transaction

BATCH = 500
"""Rows that are written in one transaction."""
_PAGE = 1024

Row = dict[str, Any]


def insert_into(
    tx: Transaction, table: Table, rows: list[Row]
) -> postgresql.Insert | sqlite.Insert:
    """The insertion of the rows, to which a rule for conflicts can be added."""
    is_postgresql = tx.connection.dialect.name == "postgresql"
    return (postgresql.insert if is_postgresql else sqlite.insert)(table).values(rows)


def lock_blobs(tx: Transaction, digests: Iterable[str]) -> None:
    """Lock the rows of these blobs in the order in which all lock them, so that nobody waits for
    whoever waits for them.
    """
    rows = select(blobs.c.digest).where(blobs.c.digest.in_(list(digests)))
    tx.connection.execute(rows.order_by(blobs.c.digest).with_for_update())


def note_blobs(tx: Transaction, listed: Mapping[str, tuple[int, float]]) -> None:
    """Note blobs by digest, with the size and the time of the last touch of each."""
    rows = [
        {"digest": digest, "size": size, "touched_at": touched, "is_read": False}
        for digest, (size, touched) in sorted(listed.items())
    ]
    if rows:
        tx.connection.execute(_noted(tx.connection.dialect.name), rows)


@cache
def _noted(dialect: str) -> postgresql.Insert | sqlite.Insert:
    """The statement for rows of blobs, made once: it is a part of every upload."""
    insert = (postgresql.insert if dialect == "postgresql" else sqlite.insert)(blobs)
    later = insert.excluded.touched_at
    return insert.on_conflict_do_update(
        index_elements=[blobs.c.digest],
        set_={"touched_at": later},
        where=later > blobs.c.touched_at + FRESH_S,
    )


def note_edges(tx: Transaction, documents: Mapping[str, Document | None]) -> None:
    """Note what blobs refer to, which have rows; None for one that is no manifest."""
    if not documents:
        return
    wanted = {edge for digest, document in documents.items() for edge in _edges(digest, document)}
    rows = [
        {"parent": parent, "child": child, "is_referrer": is_referrer}
        for parent, child, is_referrer in sorted(wanted)
    ]
    for start in range(0, len(rows), BATCH):
        insert = insert_into(tx, edges, rows[start : start + BATCH])
        tx.connection.execute(insert.on_conflict_do_nothing())
    are_read = update(blobs).where(blobs.c.digest.in_(sorted(documents)), ~blobs.c.is_read)
    tx.connection.execute(are_read.values(is_read=True))


def _edges(digest: str, document: Document | None) -> Iterator[tuple[str, str, bool]]:
    if document is None:
        return
    for part in (*document.blobs, *document.children):
        yield digest, part.digest, False
    if document.subject:
        yield digest, document.subject.digest, False
        yield document.subject.digest, digest, True


def read_new(core: Core, beat: Callable[[], None]) -> None:
    """Read each small blob that was not read yet, once in its life, and note what those refer to
    that are manifests. One that is missing or corrupt stays unread. Raises StorageFailed.
    """
    last = ""
    while page := _unread(core, last):
        last = max(page)
        documents: dict[str, Document | None] = {
            digest: None for digest, size in page.items() if size > MAX_MANIFEST
        }
        small = [digest for digest in page if digest not in documents]
        for _, result in call_many(lambda digest: _read(core.store.blobs, digest), small):
            documents |= result
        for part in _parts(sorted(documents)):
            beat()
            with core.writing() as tx:
                lock_blobs(tx, part)
                note_edges(tx, {digest: documents[digest] for digest in part})


def _unread(core: Core, after: str) -> dict[str, int]:
    query = select(blobs.c.digest, blobs.c.size).where(~blobs.c.is_read, blobs.c.digest > after)
    with core.reading() as tx:
        page = tx.connection.execute(query.order_by(blobs.c.digest).limit(_PAGE))
        return {row.digest: row.size for row in page}


def _read(store: BlobStore, digest: str) -> dict[str, Document | None]:
    try:
        return {digest: parse(store.read(digest))}
    except InvalidManifest:
        return {digest: None}
    except (BlobNotFound, BlobCorrupt):
        return {}


def _parts(digests: Iterable[str]) -> Iterator[list[str]]:
    waiting = iter(digests)
    while part := list(islice(waiting, BATCH)):
        yield part


def forget_blobs(tx: Transaction, digests: Iterable[str], before: float) -> None:
    """Remove the rows of blobs that are gone, but for those that were stored again since `before`,
    and of what they refer to.
    """
    old = blobs.c.digest.in_(list(digests)) & (blobs.c.touched_at < before)
    gone = tx.connection.scalars(delete(blobs).where(old).returning(blobs.c.digest)).all()
    of_gone = edges.c.parent.in_(gone) | (edges.c.child.in_(gone) & edges.c.is_referrer)
    tx.connection.execute(delete(edges).where(of_gone))


def count_blobs(core: Core) -> tuple[int, int]:
    """How many blobs have rows, and their bytes."""
    with core.reading() as tx:
        query = select(func.count(), func.coalesce(func.sum(blobs.c.size), 0)).select_from(blobs)
        number, size = tx.connection.execute(query).one()
    return int(number), int(size)

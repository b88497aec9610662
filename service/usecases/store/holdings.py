"""Holdings, the blobs that each tenant may read: blobs are shared by digest, who may read them is
not.

A tenant holds what it uploaded, and what was built for it. As long as `default` is the only tenant,
it may read everything, so that what the store held before stays readable; making the second tenant
gives `default` all that nobody holds. What a deleted tenant held alone is nobody's.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from types import MappingProxyType

from sqlalchemy import (
    ColumnElement,
    String,
    and_,
    bindparam,
    delete,
    exists,
    func,
    insert,
    or_,
    select,
    update,
)
from sqlalchemy.exc import IntegrityError

from artifacts.attestations import list_attestations
from artifacts.documents import Document, is_complete, keep, read_document
from artifacts.errors import BlobNotFound
from artifacts.parallel import call_many
from artifacts.store import Artifacts, Blob, BlobStore, ListedBlob, hex_of
from relaxd.contract.canonical import digest_of
from service.core import Core
from service.db.schema import TENANTS_DELETED, counters, holdings, tenants
from service.db.transaction import Transaction
from service.identity import DEFAULT, bundles_of
from service.usecases.store import catalog
from service.usecases.store.model_tags import ModelTags
from service.usecases.store.naming import JobTags
from service.usecases.store.reserving import Reservation

_BATCH = 500


def _is_open() -> ColumnElement[bool]:
    others = tenants.alias()
    alone = ~exists().where(others.c.name != DEFAULT)
    return alone & ~exists().where(counters.c.name == TENANTS_DELETED)


IS_OPEN = _is_open()
"""Whether `default` may read everything: there never was another tenant."""


def _may_read() -> ColumnElement[bool]:
    tenant, digest = bindparam("tenant", type_=String), bindparam("digest", type_=String)
    own = exists().where(holdings.c.tenant == tenant, holdings.c.digest == digest)
    return or_(own, (tenant == DEFAULT) & IS_OPEN)


MAY_READ = _may_read()
"""Whether the tenant of that bound name may read the blob of that bound digest."""
_HOLDS = select(MAY_READ)
_HELD_OF = select(holdings.c.digest).where(
    holdings.c.tenant == bindparam("tenant"),
    holdings.c.digest.in_(bindparam("digests", expanding=True)),
)
_NEW_HOLDINGS = insert(holdings)
_ADDED = (
    update(tenants)
    .where(tenants.c.name == bindparam("tenant"))
    .values(stored_bytes=tenants.c.stored_bytes + bindparam("amount"))
)
_IS_HELD = select(
    exists().where(
        holdings.c.tenant == bindparam("tenant"), holdings.c.digest == bindparam("digest")
    )
)


def view(core: Core, tenant: str) -> Artifacts:
    """The store as the tenant sees it: blobs that it does not hold are not there, what it puts it
    holds, and its jobs and registered models are tags. Raises as the store does, QuotaExceeded,
    DatabaseUnavailable.
    """
    blobs, store = TenantBlobs(core, tenant), core.store
    return replace(
        store,
        blobs=blobs,
        actions=store.actions.seen_by(partial(keep, blobs)),
        references=store.references.beside(JobTags(core, tenant), ModelTags(core, tenant)),
    )


def hold(
    core: Core,
    tenant: str,
    sizes: Mapping[str, int],
    reserved: Reservation | None = None,
    documents: Mapping[str, Document] = MappingProxyType({}),
) -> None:
    """Let the tenant read the blobs of these digests, and count their bytes as its own, no longer
    as `reserved`. `documents` are those of them that are known to be manifests.
    """
    for start in range(0, len(sizes), _BATCH):
        part = dict(islice(sizes.items(), start, start + _BATCH))
        missing = {digest: part[digest] for digest in part.keys() - _readable(core, tenant, part)}
        while missing:
            try:
                with core.writing() as tx:
                    _insert(tx, tenant, missing, reserved)
                    read = {digest: documents[digest] for digest in missing.keys() & documents}
                    catalog.note_edges(tx, read)
                break
            except IntegrityError:  # another request held one of them meanwhile
                missing = {
                    d: s for d, s in missing.items() if d not in _readable(core, tenant, part)
                }


@dataclass(frozen=True)
class Unheld:
    """Blobs that a tenant has put for one job, by digest with their sizes: it is to hold them from
    the moment that there is the job, in whose transaction that costs less than in one of its own.
    """

    tenant: str
    reserved: Reservation
    sizes: dict[str, int] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.sizes)

    def hold_in(self, tx: Transaction) -> None:
        """Do what `hold` does, in that transaction; raises IntegrityError where another request
        holds one of them meanwhile.
        """
        known = _held_of(tx, self.tenant, self.sizes)
        if missing := {digest: self.sizes[digest] for digest in self.sizes.keys() - known}:
            _insert(tx, self.tenant, missing, self.reserved)

    def hold(self, core: Core) -> None:
        """Hold them now, whatever other requests do."""
        hold(core, self.tenant, self.sizes, self.reserved)


def _insert(
    tx: Transaction, tenant: str, sizes: Mapping[str, int], reserved: Reservation | None
) -> None:
    rows = [
        {"tenant": tenant, "digest": digest, "size": size, "held_at": tx.now}
        for digest, size in sorted(sizes.items())
    ]
    tx.connection.execute(_NEW_HOLDINGS, rows)
    catalog.note_blobs(tx, {digest: (size, tx.now) for digest, size in sizes.items()})
    _add(tx, tenant, sum(sizes.values()))
    if reserved is not None:
        reserved.draw(tx, sum(sizes.values()))


def _add(tx: Transaction, tenant: str, amount: int) -> None:
    tx.connection.execute(_ADDED, {"tenant": tenant, "amount": amount})


def _readable(core: Core, tenant: str, digests: Iterable[str]) -> set[str]:
    with core.reading() as tx:
        return _held_of(tx, tenant, digests)


def _held_of(tx: Transaction, tenant: str, digests: Iterable[str]) -> set[str]:
    arguments = {"tenant": tenant, "digests": list(digests)}
    return set(tx.connection.scalars(_HELD_OF, arguments))


def is_held(core: Core, tenant: str, digest: str) -> bool:
    """True if the tenant is known to hold the blob."""
    with core.reading() as tx:
        arguments = {"tenant": tenant, "digest": digest}
        return bool(tx.connection.execute(_IS_HELD, arguments).scalar_one())


def holds(core: Core, tenant: str, digest: str) -> bool:
    """True if the tenant may read the blob."""
    with core.reading() as tx:
        arguments = {"tenant": tenant, "digest": digest}
        return bool(tx.connection.execute(_HOLDS, arguments).scalar_one())


def adopt(core: Core) -> None:
    """Give `default` what nobody holds, unless another tenant may have left it; to be done before
    there is a second tenant.
    """
    with core.reading() as tx:
        deleted = select(exists().where(counters.c.name == TENANTS_DELETED))
        if tx.connection.execute(deleted).scalar_one():
            return
    listed = iter(core.store.blobs.listing())
    while part := list(islice(listed, _BATCH)):
        query = select(holdings.c.digest).where(holdings.c.digest.in_([b.digest for b in part]))
        with core.reading() as tx:
            known = set(tx.connection.scalars(query))
        hold(core, DEFAULT, {blob.digest: blob.size for blob in part if blob.digest not in known})


def give(core: Core, tenant: str, digest: str, attested_in: str | None = None) -> None:
    """Let the tenant read a manifest of the store with all that it refers to, and the manifests
    that refer to it in the tenant's repository of bundles; attestations of the repository
    `attested_in` become referrers there too. Raises StoreError.
    """
    blobs, references = core.store.blobs, core.store.references
    own = bundles_of(tenant)
    if attested_in not in (None, own):
        for referrer in list_attestations(core.store, digest, str(attested_in)):
            references.refer(own, digest, referrer)
    sizes, documents = _reach(blobs, digest)
    for referrer in references.referrers(own, digest):
        # A referrer that is lost must not keep the bundle from its tenant.
        if is_complete(blobs, referrer):
            more, others = _reach(blobs, referrer)
            sizes, documents = sizes | more, documents | others
    hold(core, tenant, sizes, documents=documents)


def _reach(blobs: BlobStore, digest: str) -> tuple[dict[str, int], dict[str, Document]]:
    """Sizes of the manifest and of all that it refers to, and the manifests among it, by digest."""
    sizes: dict[str, int] = {}
    documents: dict[str, Document] = {}
    waiting = [digest]
    while waiting:
        manifest = waiting.pop()
        document = documents[manifest] = read_document(blobs, manifest)
        sizes |= {manifest: blobs.size(manifest)}
        sizes |= {blob.digest: blob.size for blob in document.blobs}
        waiting += [child.digest for child in document.children]
    return sizes, documents


def release(core: Core, digests: Iterable[str], before: float) -> list[str]:
    """Forget who held blobs that a collection removed, unless they were put again since; `before`
    is when the collection began. Those that are not there.
    """
    removed, missing = iter(digests), list[str]()
    while part := list(islice(removed, _BATCH)):
        looked_up = call_many(core.store.blobs.has, part)
        gone = [digest for digest, is_there in looked_up if not is_there]
        missing += gone
        lost = and_(holdings.c.digest.in_(gone), holdings.c.held_at < before)
        with core.writing() as tx:
            sizes = select(holdings.c.tenant, func.sum(holdings.c.size)).where(lost)
            for tenant, amount in tx.connection.execute(sizes.group_by(holdings.c.tenant)).all():
                _add(tx, tenant, -int(amount))
            tx.connection.execute(delete(holdings).where(lost))
    return missing


def draw_on(reserved: Reservation, blobs: BlobStore, unheld: Unheld | None = None) -> BlobStore:
    """The tenant's view of the blobs, in which what is put is counted by the reservation, and held
    once `unheld` is; a store that is no tenant's stays as it is.
    """
    if not isinstance(blobs, TenantBlobs):
        return blobs
    return replace(blobs, reserved=reserved, unheld=unheld)


def look_up(blobs: BlobStore, digests: Sequence[str]) -> BlobStore:
    """The tenant's view of the blobs, which has asked for all these digests at once whether the
    tenant may read them; a store that is no tenant's stays as it is. For one request.
    """
    if not isinstance(blobs, TenantBlobs):
        return blobs
    known = set(blobs.known)
    for start in range(0, len(digests), _BATCH):
        known |= _readable(blobs.core, blobs.tenant, digests[start : start + _BATCH])
    return replace(blobs, known=frozenset(known))


def _metered(chunks: Iterable[bytes], reserved: Reservation) -> Iterator[bytes]:
    size = 0
    for chunk in chunks:
        size += len(chunk)
        reserved.cover(size)
        yield chunk


@dataclass(frozen=True)
class TenantBlobs:
    """The blob store of `core` as one tenant sees it; `reserved` counts what is put until it is
    stored, by default a reservation for each blob.
    """

    core: Core
    tenant: str
    reserved: Reservation | None = None
    known: frozenset[str] = frozenset()
    """Blobs of which it was found out that the tenant holds them."""
    unheld: Unheld | None = None
    """Gets what is put, to be held later."""

    @property
    def _inner(self) -> BlobStore:
        return self.core.store.blobs

    def put(self, data: bytes | Iterable[bytes], expected: str | None = None) -> Blob:
        """See BlobStore.put; raises QuotaExceeded, with nothing stored."""
        if isinstance(data, bytes) and self._keeps(expected or digest_of(data)):
            return self._inner.put(data, expected)
        chunks = [data] if isinstance(data, bytes) else data
        if expected is not None and is_held(self.core, self.tenant, expected):
            return self._keep(self._inner.put(data, expected))
        with self._reserving() as reserved:
            stored = self._inner.put(_metered(chunks, reserved), expected)
            return self._keep(stored, reserved)

    @contextmanager
    def _reserving(self) -> Iterator[Reservation]:
        if self.reserved is not None:
            yield self.reserved
            return
        reserved = Reservation(self.core, self.tenant)
        try:
            yield reserved
        finally:
            reserved.end()

    def _keeps(self, digest: str) -> bool:
        """True if the tenant holds the blob, which is touched first: no collection takes it any
        more, and with it the holding.
        """
        is_unheld = self.unheld is not None and digest in self.unheld.sizes
        is_there = self._inner.touch(digest)
        return is_there and (is_unheld or is_held(self.core, self.tenant, digest))

    def _keep(self, blob: Blob, reserved: Reservation | None = None) -> Blob:
        if self.unheld is not None:
            self.unheld.sizes[blob.digest] = blob.size
        else:
            hold(self.core, self.tenant, {blob.digest: blob.size}, reserved)
        return blob

    def has(self, digest: str) -> bool:
        """See BlobStore.has."""
        return self._inner.has(digest) and self._may_read(digest)

    def touch(self, digest: str) -> bool:
        """See BlobStore.touch."""
        hex_of(digest)
        return self._may_read(digest) and self._inner.touch(digest)

    def size(self, digest: str) -> int:
        """See BlobStore.size."""
        self._check(digest)
        return self._inner.size(digest)

    def read(self, digest: str) -> bytes:
        """See BlobStore.read."""
        self._check(digest)
        return self._inner.read(digest)

    def open(self, digest: str, start: int = 0, end: int | None = None) -> Iterator[bytes]:
        """See BlobStore.open."""
        self._check(digest)
        return self._inner.open(digest, start, end)

    def presign(self, digest: str, seconds: float) -> str | None:
        """See BlobStore.presign."""
        self._check(digest)
        return self._inner.presign(digest, seconds)

    def _may_read(self, digest: str) -> bool:
        return digest in self.known or holds(self.core, self.tenant, digest)

    def _check(self, digest: str) -> None:
        hex_of(digest)
        if not self._may_read(digest):
            raise BlobNotFound(digest)

    def listing(self) -> Iterator[ListedBlob]:
        """See BlobStore.listing."""
        return (blob for blob in self._inner.listing() if self.has(blob.digest))

    def discard(self, digest: str, before: float) -> bool:
        """Removes nothing: only collections do, and they see the whole store."""
        return False

    def discard_many(self, digests: Sequence[str], before: float) -> set[str]:
        """Remove nothing: only collections do."""
        return set()

    def last_touch(self, digest: str) -> float | None:
        """See BlobStore.last_touch."""
        return self._inner.last_touch(digest) if self._may_read(digest) else None

    def quarantine(self) -> Iterator[ListedBlob]:
        """Nothing: what was set aside is the operator's to look at."""
        return iter(())

    def clear_quarantine(self, before: float) -> int:
        """Removes nothing: only collections do."""
        return 0

    def free(self) -> int | None:
        """See BlobStore.free."""
        return self._inner.free()

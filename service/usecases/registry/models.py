"""Registered models: names with numbered versions, each a bundle or an index, and aliases."""

from collections.abc import Mapping

from sqlalchemy import ColumnElement, Select, Table, delete, func, insert, select, update
from sqlalchemy.exc import IntegrityError

from service.core import Core
from service.db import outbox, records
from service.db.schema import jobs, model_aliases, model_versions, registered_models
from service.db.transaction import Transaction
from service.domain import HookEvent, ModelAlias, ModelVersion, RegisteredModel
from service.errors import (
    NothingBuilt,
    RegistryFull,
    UnknownJob,
    UnknownRegistered,
    VersionInUse,
)
from service.usecases import auditing
from service.usecases.auditing import Change
from service.usecases.store import pinning
from service.usecases.store.model_tags import find_version

MOST_MODELS, MOST_VERSIONS, MOST_ALIASES = 1000, 10_000, 20
"""Names and versions of a tenant, aliases of a name."""
TABLES = (registered_models, model_versions, model_aliases)


def list_models(
    core: Core,
    tenant: str,
    *,
    project: str | None = None,
    labels: Mapping[str, str] | None = None,
    after: str = "",
    limit: int = 100,
) -> list[RegisteredModel]:
    """The tenant's models by name after that one, of a project and with labels if given."""
    query = _of(registered_models, tenant).where(registered_models.c.name > after)
    if project is not None:
        query = query.where(registered_models.c.project == project)
    for key, value in (labels or {}).items():
        query = query.where(registered_models.c.labels[key].as_string() == value)
    with core.reading() as tx:
        rows = tx.connection.execute(query.order_by(registered_models.c.name).limit(limit)).all()
        aliases = _aliases(tx, tenant, [row.name for row in rows])
    return [records.registered_from(row, aliases.get(row.name, [])) for row in rows]


def get_model(core: Core, tenant: str, name: str) -> RegisteredModel:
    """The model with its aliases; raises UnknownRegistered."""
    with core.reading() as tx:
        return _model(tx, tenant, name)


def list_versions(
    core: Core, tenant: str, name: str, *, before: int | None = None, limit: int = 100
) -> list[ModelVersion]:
    """Its versions, the newest first."""
    query = _of(model_versions, tenant, name).order_by(model_versions.c.version.desc())
    if before is not None:
        query = query.where(model_versions.c.version < before)
    with core.reading() as tx:
        return [records.version_from(row) for row in tx.connection.execute(query.limit(limit))]


def resolve(core: Core, tenant: str, name: str, version: str) -> ModelVersion:
    """The version of that number, that alias, or the newest; raises UnknownRegistered."""
    with core.reading() as tx:
        return find_version(tx, tenant, name, version)


def register(
    core: Core,
    tenant: str,
    name: str,
    *,
    digest: str | None = None,
    job_id: str | None = None,
    submitter: str,
    labels: Mapping[str, str] | None = None,
    notes: str = "",
) -> ModelVersion:
    """Make the next version of the name, and the name if it is new: a bundle or an index by its
    digest, or that of a job. It stays in the store with all that it refers to. Raises UnknownJob,
    NothingBuilt, RegistryFull, and as `pinning.keep_for` does.
    """
    if digest is None:
        digest = _built(core, tenant, str(job_id))
    pinning.keep_for(core, digest, tenant)
    _ensure(core, tenant, name)
    with core.writing() as tx:
        if _count(tx, model_versions, tenant) >= MOST_VERSIONS:
            raise RegistryFull(f"{MOST_VERSIONS} versions of models")
        # The row of the name is locked from here on, so that no two versions have one number.
        more = update(registered_models).where(_is(registered_models, tenant, name))
        tx.connection.execute(more.values(last_version=registered_models.c.last_version + 1))
        version = _model(tx, tenant, name).last_version
        values = {
            "tenant": tenant,
            "name": name,
            "version": version,
            "digest": digest,
            "job_id": job_id,
            "submitter": submitter,
            "labels": dict(labels or {}),
            "notes": notes,
            "created_at": tx.now,
        }
        tx.connection.execute(insert(model_versions).values(values))
        return find_version(tx, tenant, name, str(version))


def describe(
    core: Core,
    tenant: str,
    name: str,
    **values: object,
) -> RegisteredModel:
    """Set some of `project`, `labels` and `notes` of a model; raises UnknownRegistered."""
    with core.writing() as tx:
        _model(tx, tenant, name)
        if values:
            mine = _is(registered_models, tenant, name)
            tx.connection.execute(update(registered_models).where(mine).values(values))
        return _model(tx, tenant, name)


def move_alias(
    core: Core, tenant: str, name: str, alias: str, version: str, change: Change
) -> ModelAlias:
    """Point an alias at a version, and write that to the audit log and for webhooks in the same
    transaction. Raises UnknownRegistered, RegistryFull.
    """
    with core.writing() as tx:
        number = find_version(tx, tenant, name, version).version
        known = {one.alias: one for one in _aliases(tx, tenant, [name]).get(name, [])}
        if alias not in known and len(known) >= MOST_ALIASES:
            raise RegistryFull(f"{MOST_ALIASES} aliases of {name}")
        previous = known[alias].version if alias in known else None
        mine = _is(model_aliases, tenant, name) & (model_aliases.c.alias == alias)
        tx.connection.execute(delete(model_aliases).where(mine))
        values = {
            "version": number,
            "previous": previous,
            "moved_at": tx.now,
            "moved_by": change.principal,
        }
        row = {"tenant": tenant, "name": name, "alias": alias, **values}
        tx.connection.execute(insert(model_aliases).values(row))
        change.detail |= {"version": number, "previous": previous}
        entry = auditing.entry_of(change, tx.now, tenant=tenant, subject=f"{name}@{alias}")
        tx.connection.execute(auditing.ENTRY, entry)
        data = {"name": name, "alias": alias, "version": number, "previous": previous}
        data |= {"digest": find_version(tx, tenant, name, alias).digest, "by": change.principal}
        outbox.post(tx.connection, tx.now, tenant, HookEvent.ALIAS_MOVED, data)
        moved = next(one for one in _aliases(tx, tenant, [name])[name] if one.alias == alias)
    change.written = True
    return moved


def remove_alias(core: Core, tenant: str, name: str, alias: str) -> None:
    """Remove an alias; raises UnknownRegistered."""
    mine = _is(model_aliases, tenant, name) & (model_aliases.c.alias == alias)
    with core.writing() as tx:
        if not tx.connection.execute(delete(model_aliases).where(mine)).rowcount:
            raise UnknownRegistered(f"{name}@{alias}")


def remove_version(core: Core, tenant: str, name: str, version: int) -> None:
    """Remove a version, whose number no other gets; raises UnknownRegistered, and VersionInUse
    while an alias points at it.
    """
    with core.writing() as tx:
        find_version(tx, tenant, name, str(version))
        aliases = _aliases(tx, tenant, [name]).get(name, [])
        if pointing := [one.alias for one in aliases if one.version == version]:
            raise VersionInUse(f"{name}@{version}", pointing)
        mine = _is(model_versions, tenant, name) & (model_versions.c.version == version)
        tx.connection.execute(delete(model_versions).where(mine))


def remove_model(core: Core, tenant: str, name: str) -> None:
    """Remove a name with its versions and aliases; raises UnknownRegistered."""
    with core.writing() as tx:
        _model(tx, tenant, name)
        for table in TABLES:
            tx.connection.execute(delete(table).where(_is(table, tenant, name)))


def _built(core: Core, tenant: str, job_id: str) -> str:
    """The index of a job's bundles."""
    query = select(jobs.c.index_digest).where(jobs.c.tenant == tenant, jobs.c.id == job_id)
    with core.reading() as tx:
        row = tx.connection.execute(query).one_or_none()
    if row is None:
        raise UnknownJob(job_id)
    if row.index_digest is None:
        raise NothingBuilt(job_id)
    return str(row.index_digest)


def _ensure(core: Core, tenant: str, name: str) -> None:
    try:
        with core.writing() as tx:
            if tx.connection.execute(_of(registered_models, tenant, name)).one_or_none():
                return
            if _count(tx, registered_models, tenant) >= MOST_MODELS:
                raise RegistryFull(f"{MOST_MODELS} names of models")
            fresh = {"project": "", "labels": {}, "notes": "", "last_version": 0}
            row = {"tenant": tenant, "name": name, "created_at": tx.now, **fresh}
            tx.connection.execute(insert(registered_models).values(row))
    except IntegrityError:  # another request made it meanwhile
        return


def _model(tx: Transaction, tenant: str, name: str) -> RegisteredModel:
    row = tx.connection.execute(_of(registered_models, tenant, name)).one_or_none()
    if row is None:
        raise UnknownRegistered(name)
    return records.registered_from(row, _aliases(tx, tenant, [name]).get(name, []))


def _aliases(tx: Transaction, tenant: str, names: list[str]) -> dict[str, list[ModelAlias]]:
    query = _of(model_aliases, tenant).where(model_aliases.c.name.in_(names))
    result: dict[str, list[ModelAlias]] = {}
    for row in tx.connection.execute(query.order_by(model_aliases.c.alias)):
        result.setdefault(row.name, []).append(records.alias_from(row))
    return result


def _count(tx: Transaction, table: Table, tenant: str) -> int:
    query = select(func.count()).select_from(table).where(table.c.tenant == tenant)
    return tx.connection.execute(query).scalar_one()


def _of(table: Table, tenant: str, name: str | None = None) -> Select[tuple[object, ...]]:
    return select(table).where(
        table.c.tenant == tenant if name is None else _is(table, tenant, name)
    )


def _is(table: Table, tenant: str, name: str) -> ColumnElement[bool]:
    return (table.c.tenant == tenant) & (table.c.name == name)

"""Versions of registered models as tags: `NAMESPACE/models/NAME` has `vN` for each version, and the
aliases.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import String, cast, select

from service.core import Core
from service.db import records
from service.db.schema import model_aliases, model_versions
from service.db.transaction import Transaction
from service.domain import ModelVersion
from service.errors import UnknownRegistered
from service.identity import namespace

LATEST = "latest"
"""The name of the newest version, which is no alias."""
_NUMBER = re.compile(r"[0-9]{1,9}")
_TAG = re.compile(r"v([0-9]{1,9})|([a-z].*)")


def find_version(tx: Transaction, tenant: str, name: str, version: str) -> ModelVersion:
    """The version of that number, that alias, or the newest; raises UnknownRegistered."""
    query = select(model_versions).where(
        model_versions.c.tenant == tenant, model_versions.c.name == name
    )
    if version == LATEST:
        query = query.order_by(model_versions.c.version.desc()).limit(1)
    elif _NUMBER.fullmatch(version):
        query = query.where(model_versions.c.version == int(version))
    else:
        pointed = select(model_aliases.c.version).where(
            model_aliases.c.tenant == tenant,
            model_aliases.c.name == name,
            model_aliases.c.alias == version,
        )
        query = query.where(model_versions.c.version == pointed.scalar_subquery())
    row = tx.connection.execute(query).one_or_none()
    if row is None:
        raise UnknownRegistered(f"{name}@{version}")
    return records.version_from(row)


@dataclass(frozen=True)
class ModelTags:
    """Those of one tenant, as `artifacts.references.Tags`; raises DatabaseUnavailable."""

    core: Core
    tenant: str

    def resolve(self, repository: str, tag: str) -> str | None:
        """The digest of the version."""
        name, parts = self._model(repository), _TAG.fullmatch(tag)
        if name is None or parts is None:
            return None
        try:
            with self.core.reading() as tx:
                return find_version(tx, self.tenant, name, parts[1] or parts[2]).digest
        except UnknownRegistered:
            return None

    def tags(self, repository: str, after: str, most: int | None) -> Sequence[str]:
        """See `Tags.tags`."""
        name = self._model(repository)
        if name is None:
            return ()
        numbers = "v" + cast(model_versions.c.version, String)
        queries = [
            select(tag).where(table.c.tenant == self.tenant, table.c.name == name)
            for table, tag in ((model_versions, numbers), (model_aliases, model_aliases.c.alias))
        ]
        with self.core.reading() as tx:
            tags = {tag for query in queries for tag in tx.connection.scalars(query)}
        return sorted(tag for tag in tags if tag > after)[:most]

    def _model(self, repository: str) -> str | None:
        beginning = f"{namespace(self.tenant)}/models/"
        return repository.removeprefix(beginning) if repository.startswith(beginning) else None

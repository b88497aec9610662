"""The tags `job-<id>`, each of which names the index of a job: they are rows of `jobs`, so that no
job needs a write to the store. What an earlier release wrote there stays a name all the same.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import bindparam, func, select

from artifacts.oci import JOB_TAG
from service.core import Core
from service.db.schema import jobs
from service.identity import bundles_of

_OF_TENANT = jobs.c.tenant == bindparam("tenant")
_INDEX = select(jobs.c.index_digest).where(_OF_TENANT, jobs.c.id == bindparam("id"))
_NAMED = _OF_TENANT & jobs.c.index_digest.is_not(None)
_IDS = select(jobs.c.id).where(_NAMED, jobs.c.id > bindparam("after")).order_by(jobs.c.id)
_COUNT = select(func.count()).select_from(jobs).where(_NAMED)
_BEGINNING = re.compile(f"{JOB_TAG}([0-9a-f]*)")
"""Of a tag, as far as databases of any collation compare it as Python does."""


def tag_of(job_id: str) -> str:
    """The tag of that job's index, in the repository of its tenant's bundles."""
    return f"{JOB_TAG}{job_id}"


@dataclass(frozen=True)
class JobTags:
    """Those of one tenant's jobs, as `artifacts.references.Tags`; raises DatabaseUnavailable."""

    core: Core
    tenant: str

    def resolve(self, repository: str, tag: str) -> str | None:
        """The index of the job, once one of its builds has a bundle."""
        if repository != bundles_of(self.tenant) or not tag.startswith(JOB_TAG):
            return None
        arguments = {"tenant": self.tenant, "id": tag.removeprefix(JOB_TAG)}
        with self.core.reading() as tx:
            return tx.connection.execute(_INDEX, arguments).scalar_one_or_none()

    def tags(self, repository: str, after: str, most: int | None) -> Sequence[str]:
        """See `Tags.tags`; reads no more rows than it returns."""
        begun = _BEGINNING.match(after)
        if repository != bundles_of(self.tenant) or (after > JOB_TAG and not begun):
            return ()
        arguments = {"tenant": self.tenant, "after": begun[1] if begun else ""}
        with self.core.reading() as tx:
            ids = tx.connection.scalars(_IDS.limit(most), arguments)
            return [tag for job_id in ids if (tag := tag_of(job_id)) > after]

    def count(self) -> int:
        """How many there are."""
        with self.core.reading() as tx:
            return tx.connection.execute(_COUNT, {"tenant": self.tenant}).scalar_one()

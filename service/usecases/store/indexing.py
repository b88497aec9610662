"""The index of a job: an OCI document over its bundles, rewritten when another build ends."""

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import structlog
from sqlalchemy import update

from artifacts.documents import is_complete, keep, read_document
from artifacts.errors import StoreError
from artifacts.oci import TARGET, IndexEntry, bundle_files, publish_index
from artifacts.store import BlobStore
from service.core import Core
from service.db.schema import jobs
from service.domain import Artifact, Job
from service.identity import bundles_of
from service.usecases.store import holdings
from service.usecases.store.naming import tag_of
from service.usecases.store.remembering import recall

_MANIFEST = "manifest.json"

logger = structlog.get_logger("relaxd.index")


def index_of(core: Core, job: Job) -> Artifact | None:
    """The index of an ended job, which its tag names; None while it runs, and where no bundle is in
    the store; raises StoreError.
    """
    if not job.state.terminal:
        return None
    # An earlier release may have named it in the store alone.
    stored = core.store.references.resolve
    digest = job.index_digest or stored(bundles_of(job.tenant), tag_of(job.id))
    return _current(core, job, digest, is_complete, _publish)


def prepare_index(core: Core, tenant: str, built: Mapping[str, Artifact]) -> str | None:
    """The digest of the index over these bundles, by target, for a job of the tenant's that is
    about to be written; None where there are none, or the store fails.
    """
    if not built:
        return None
    try:
        return _publish_once(core, tenant, built)
    except StoreError as error:
        logger.warning("an index was not published", error=str(error))
        return None


def with_index(job: Job) -> Job:
    """The new job with its index, if it has one already."""
    if job.index_digest is None or not job.state.terminal:
        return job
    return replace(job, index=_named(job, job.index_digest, _artifacts(job)))


def publish(core: Core, job_id: str) -> None:
    """Have the job's tag name an index over the bundles that it has by now, so that OCI clients
    find it.
    """
    try:
        job = _job(core, job_id)
        while True:
            # The build has just touched its bundle, which makes `keep` the cheaper look.
            _current(core, job, job.index_digest, keep, _publish_once)
            # Another of the job's builds may have ended meanwhile, and its index been replaced by
            # ours.
            before, job = job, _job(core, job_id)
            if _artifacts(job) == _artifacts(before):
                return
    except StoreError as error:
        # The build has ended all the same, and whoever looks at the job makes the index.
        logger.warning("a job's index was not published", job=job_id, error=str(error))


def _job(core: Core, job_id: str) -> Job:
    with core.reading() as tx:
        return tx.job(job_id)


def _artifacts(job: Job) -> dict[str, Artifact]:
    return {build.target: build.artifact for build in job.builds if build.artifact}


def _current(
    core: Core,
    job: Job,
    digest: str | None,
    is_there: Callable[[BlobStore, str], bool],
    publish: Callable[[Core, str, Mapping[str, Artifact]], str],
) -> Artifact | None:
    """The index over the bundles that are there: the one of that digest if it lists them, or else a
    new one, which the job's tag names from then on.
    """
    built = {
        target: artifact
        for target, artifact in _artifacts(job).items()
        if is_there(core.store.blobs, artifact.digest)
    }
    if not built:
        return None
    if digest is None or _listed(core, digest) != {
        target: artifact.digest for target, artifact in built.items()
    }:
        digest = publish(core, job.tenant, built)
    if job.index_digest != digest:
        _note(core, job.id, digest)
    return _named(job, digest, built)


def _named(job: Job, digest: str, built: Mapping[str, Artifact]) -> Artifact:
    reference = f"{bundles_of(job.tenant)}:{tag_of(job.id)}"
    return Artifact(digest, reference, sum(artifact.size for artifact in built.values()))


def _publish(core: Core, tenant: str, built: Mapping[str, Artifact]) -> str:
    """Store the index, which the tenant holds from then on; its digest."""
    entries = [_entry(core, target, artifact.digest) for target, artifact in built.items()]
    digest = publish_index(core.store.blobs, entries)
    holdings.hold(core, tenant, {digest: core.store.blobs.size(digest)})
    return digest


def _publish_once(core: Core, tenant: str, built: Mapping[str, Artifact]) -> str:
    """Publish unless an index was stored a while ago: jobs with equal bundles have
    equal ones.
    """
    bundles = sorted((target, artifact.digest) for target, artifact in built.items())

    def find(snapshot: Core) -> str:
        return _publish(snapshot, tenant, built)

    def stands(digest: str) -> bool:
        return core.store.blobs.has(digest) and holdings.is_held(core, tenant, digest)

    return recall(core, ("index", tenant, *bundles), find, stands)


def _note(core: Core, job_id: str, digest: str) -> None:
    with core.writing() as tx:
        mine = update(jobs).where(jobs.c.id == job_id)
        tx.connection.execute(mine.values(index_digest=digest))


def _listed(core: Core, digest: str) -> dict[str, str]:
    """The bundles of an index by target; empty where the index itself is lost."""
    if not core.store.blobs.has(digest):
        return {}
    return {
        child.annotations.get(TARGET, ""): child.digest
        for child in read_document(core.store.blobs, digest).children
    }


def _entry(core: Core, target: str, digest: str) -> IndexEntry:
    blobs = core.store.blobs
    files = bundle_files(read_document(blobs, digest))
    manifest: dict[str, Any] = json.loads(blobs.read(files[_MANIFEST].digest))
    load = manifest["load"]
    return IndexEntry(
        digest,
        target,
        load["arch"],
        os=load["os"],
        features=tuple(load["isa"]),
        device=load["device"],
        status=manifest["target"].get("status"),
    )

"""Dumps of the compiler: which builds of a request ask for one, and which are stored."""

from dataclasses import replace

from artifacts.dumps import dump_of
from relaxd.contract.request import CompileRequest
from service.core import Core
from service.domain import Artifact, Build, Job
from service.identity import bundles_of


def lacks_dump(core: Core, tenant: str, request: CompileRequest, bundle: str) -> bool:
    """True if the request of a tenant asks for a dump that it has not: the bundle may come from a
    request that did not.
    """
    return request.options.dump and dump_of(core.store, bundle, bundles_of(tenant)) is None


def with_dumps(core: Core, job: Job) -> Job:
    """The job, with the dumps that its request asks for."""
    if not job.request.options.dump:
        return job
    return replace(
        job,
        builds=tuple(replace(build, dump=_dump(core, job.tenant, build)) for build in job.builds),
    )


def _dump(core: Core, tenant: str, build: Build) -> Artifact | None:
    if build.artifact is None:
        return None
    dump = dump_of(core.store, build.artifact.digest, bundles_of(tenant))
    return Artifact(dump.digest, dump.ref, dump.size) if dump else None

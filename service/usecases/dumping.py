"""Dumps of the compiler: which builds of a request ask for one, and which are stored."""

from dataclasses import replace

from artifacts.dumps import dump_of
from relaxd.contract.request import CompileRequest
from service.core import Core
from service.domain import Artifact, Build, Job


def lacks_dump(core: Core, request: CompileRequest, bundle: str) -> bool:
    """Whether the request asks for a dump that is not in the store: the bundle may come from a
    request that did not.
    """
    return request.options.dump and dump_of(core.store, bundle) is None


def with_dumps(core: Core, job: Job) -> Job:
    """The job, with the dumps that its request asks for."""
    if not job.request.options.dump:
        return job
    return replace(
        job, builds=tuple(replace(build, dump=_dump(core, build)) for build in job.builds)
    )


def _dump(core: Core, build: Build) -> Artifact | None:
    found = dump_of(core.store, build.artifact.digest) if build.artifact else None
    return Artifact(found.digest, found.ref, found.size) if found else None

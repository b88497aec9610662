"""Finds existing results by action key: bundles in the store, reports in the database."""

import json
from typing import Any

from sqlalchemy import select

from artifacts.documents import read_document
from artifacts.oci import REPOSITORY, bundle_files
from relaxd.contract.bundle import kernels, numerics
from relaxd.contract.states import State
from relaxd.contract.text import sanitize
from service.core import Core
from service.db.schema import builds
from service.domain import Artifact, Claim, Kind, Outcome
from service.identity import DEFAULT, bundles_of
from service.usecases.builds import explaining
from service.usecases.store.dumping import lacks_dump


def known_outcome(core: Core, claim: Claim) -> Outcome | None:
    """The result of earlier equal work, marked as cached, or None."""
    if claim.kind is Kind.INSPECT:
        return _report(core, claim.flight_key)
    digest = core.store.actions.get(claim.flight_key)
    if digest is None or lacks_dump(core, claim.tenant, claim.request, digest):
        return None
    return bundle_outcome(core, digest, claim.tenant, cached=True)


def bundle_outcome(core: Core, digest: str, tenant: str = DEFAULT, *, cached: bool) -> Outcome:
    """The success that a stored bundle stands for, as the tenant finds it; raises
    artifacts.errors.StoreError.
    """
    files = bundle_files(read_document(core.store.blobs, digest))

    def document(name: str) -> dict[str, Any] | None:
        if name not in files:
            return None
        content: dict[str, Any] = json.loads(core.store.blobs.read(files[name].digest))
        return content

    size = sum(layer.size for layer in files.values())
    artifact = Artifact(digest, f"{bundles_of(tenant)}@{digest}", size)
    return Outcome(
        State.SUCCEEDED,
        cached,
        artifact,
        # Here, where it is done once for all builds that get it.
        profile=sanitize(_profile(core, digest, tenant, document(kernels.FILENAME))),
        numerics=sanitize(document(numerics.FILENAME)),
    )


def _profile(
    core: Core, digest: str, tenant: str, notes: dict[str, Any] | None
) -> dict[str, Any] | None:
    """The newest profile of the bundle, with its kernels, but without the reasons of families that
    declined one, which take more room than all the rest.
    """
    for repository in (bundles_of(tenant), REPOSITORY):
        if attached := explaining.measurements(core.store, digest, repository):
            break
    else:
        return None
    measured, content = attached[-1]
    if not measured.measured:
        return {"measured": False, "reason": measured.reason}
    listed = kernels.kernels_of(notes) if notes else []
    brief = [
        {name: value for name, value in kernel.items() if name != "declined"} for kernel in listed
    ]
    return {**json.loads(content), **({"kernels": brief} if brief else {})}


def _report(core: Core, key: str) -> Outcome | None:
    query = (
        select(builds.c.report)
        .where(builds.c.action_key == key, builds.c.state == State.SUCCEEDED)
        .limit(1)
    )
    with core.reading() as tx:
        report = tx.connection.scalars(query).one_or_none()
    return Outcome(State.SUCCEEDED, cached=True, report=report) if report is not None else None

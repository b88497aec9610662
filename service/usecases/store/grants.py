"""Gives a tenant what one of its builds has ended with: the right to read it, and its names."""

from dataclasses import replace

from artifacts.oci import REPOSITORY
from relaxd.contract.failures import Failure
from service.core import Core
from service.domain import Artifact, Outcome
from service.identity import bundles_of
from service.usecases.store import holdings


def give(
    core: Core, tenant: str, outcome: Outcome, *, shared: bool, has_dump: bool = False
) -> None:
    """Let the tenant read the artifacts of an outcome of its own, or with `shared` of another
    tenant's build, whose attestations come along; has_dump: a dump may be new beside a bundle that
    the tenant has. Raises StoreError.
    """
    attested_in = REPOSITORY if shared else None
    artifact, reproducer = outcome.artifact, _reproducer(outcome.error)
    if artifact and (
        has_dump or not (outcome.cached and holdings.is_held(core, tenant, artifact.digest))
    ):
        holdings.give(core, tenant, artifact.digest, attested_in)
    if reproducer:
        holdings.give(core, tenant, reproducer["digest"])


def named_for(tenant: str, outcome: Outcome) -> Outcome:
    """The outcome with references to the tenant's own repository."""
    artifact, error, reproducer = outcome.artifact, outcome.error, _reproducer(outcome.error)
    if artifact:
        artifact = Artifact(artifact.digest, _reference(tenant, artifact.digest), artifact.size)
    if error and reproducer:
        renamed = {**reproducer, "ref": _reference(tenant, reproducer["digest"])}
        error = replace(error, details={**error.details, "reproducer": renamed})
    return replace(outcome, artifact=artifact, error=error)


def _reproducer(error: Failure | None) -> dict[str, str] | None:
    """The artifact that shows a mismatch again, where the failure has one in the store."""
    reproducer = error.details.get("reproducer") if error and error.details else None
    return reproducer if isinstance(reproducer, dict) else None


def _reference(tenant: str, digest: str) -> str:
    return f"{bundles_of(tenant)}@{digest}"

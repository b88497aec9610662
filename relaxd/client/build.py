"""One target's part of a job, typed: state, artifact, numerics, profile, error."""

from dataclasses import dataclass
from typing import Any

from relaxd.contract.bundle.numerics import Numerics
from relaxd.contract.bundle.profile import Profile
from relaxd.contract.states import Stage, State


@dataclass(frozen=True)
class Artifact:
    """A published bundle: its digest, its reference in the service's registry, its bytes."""

    digest: str
    ref: str
    size: int


@dataclass(frozen=True)
class Build:
    """One target's part of a job; `document` is its wire form whole.

    stage: the one that runs, or ran last; note: why a queued build does not run yet; error: the
    failure of one that failed.
    """

    target: str
    state: State
    stage: Stage | None
    cached: bool
    artifact: Artifact | None
    numerics: Numerics
    profile: Profile
    error: dict[str, Any] | None
    note: str | None
    document: dict[str, Any]

    @classmethod
    def from_json(cls, document: dict[str, Any]) -> "Build":
        """From the wire form; raises BundleError for malformed reports."""
        artifact = document.get("artifact")
        return cls(
            target=document["target"],
            state=State(document["state"]),
            stage=Stage(document["stage"]) if document.get("stage") else None,
            cached=bool(document.get("cached")),
            artifact=Artifact(**{name: artifact[name] for name in ("digest", "ref", "size")})
            if artifact
            else None,
            numerics=Numerics.from_json(document.get("numerics")),
            profile=Profile.from_json(document.get("profile") or {}),
            error=document.get("error"),
            note=document.get("note"),
            document=document,
        )

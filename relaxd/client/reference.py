"""Parses the argument of `pull`: a job id, a digest, a registered model like `minilm@prod`, or an
OCI reference like `host/name:tag`.
"""

import re
from dataclasses import dataclass

from relaxd.client.errors import PullError
from relaxd.contract.canonical import is_digest

BUNDLES = "bundles"
"""The repository of bundles, in the namespace of one's tenant."""
REPOSITORY = f"relaxd/{BUNDLES}"

_HOST = (
    r"(?P<host>localhost(:\d+)?|[A-Za-z0-9-]+(\.[A-Za-z0-9-]+)+(:\d+)?"
    r"|[A-Za-z0-9-]+:\d+|\[[0-9a-fA-F:]+\](:\d+)?)"
)
_NAME = r"(?P<name>[a-z0-9]+([._-]+[a-z0-9]+)*(/[a-z0-9]+([._-]+[a-z0-9]+)*)*)"
_OCI = re.compile(
    rf"((?P<scheme>oci|https?)://)?({_HOST}/)?{_NAME}(@(?P<digest>sha256:[0-9a-f]{{64}})|:(?P<tag>[A-Za-z0-9_][A-Za-z0-9._-]{{0,127}}))"
)
_MODEL = re.compile(r"([a-z0-9]+(?:[._-][a-z0-9]+)*)@([a-z0-9][a-z0-9._-]*)")
_JOB = re.compile(r"[A-Za-z0-9_-]+")
_LOCAL = re.compile(r"(localhost|127\.\d+\.\d+\.\d+|\[::1\])(:\d+)?")


@dataclass(frozen=True)
class JobReference:
    """A job of the service that is asked."""

    job_id: str


@dataclass(frozen=True)
class ModelReference:
    """A registered model of the service that is asked; version: a number, an alias or `latest`."""

    name: str
    version: str


@dataclass(frozen=True)
class ArtifactReference:
    """A manifest in a registry: `url` is the registry's, None for the service that is asked;
    `version` a digest or a tag.
    """

    url: str | None
    name: str
    version: str


def parse(text: str) -> JobReference | ModelReference | ArtifactReference:
    """Read a reference; raises PullError for anything else."""
    if is_digest(text):
        return ArtifactReference(None, REPOSITORY, text)
    if (match := _OCI.fullmatch(text)) and match["name"] != "sha256":
        return ArtifactReference(
            _url(match["scheme"], match["host"]), match["name"], match["digest"] or match["tag"]
        )
    if match := _MODEL.fullmatch(text):
        return ModelReference(*match.groups())
    if _JOB.fullmatch(text):
        return JobReference(text)
    raise PullError(
        f"{text!r} names no artifact",
        hint="give a job id, a digest sha256:..., a name with an alias or number name@prod, or "
        "an OCI reference host/name@sha256:...",
    )


def _url(scheme: str | None, host: str | None) -> str | None:
    if host is None:
        return None
    if scheme in ("http", "https"):
        return f"{scheme}://{host}"
    return f"{'http' if _LOCAL.fullmatch(host) else 'https'}://{host}"

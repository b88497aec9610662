"""Names in the registry: repositories, tags, and the paths below them."""

import re
from collections.abc import Callable
from typing import Annotated

from fastapi import Depends, Request

from artifacts.store import Artifacts
from relaxd.contract.canonical import is_digest
from service.api.oci_errors import Code, RegistryError
from service.api.scopes import principal_of
from service.identity import namespace

COMPONENT = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*"
BELOW = re.compile(rf"(?:/{COMPONENT})+")
TAG = re.compile(r"[a-zA-Z0-9_][a-zA-Z0-9._-]{0,127}")
LONGEST = 255
StoreOf = Callable[[Request], Artifacts]
"""The store as whoever sent the request sees it."""


async def _repository(name: str, request: Request) -> str:
    return check_repository(name, principal_of(request).tenant)


def check_repository(name: str, tenant: str) -> str:
    """The name of a repository of the tenant, as it is; raises RegistryError for any other, whether
    somebody has it or not.
    """
    own = namespace(tenant)
    below = name.removeprefix(own)
    if len(name) > LONGEST or below == name or not BELOW.fullmatch(below):
        raise RegistryError(
            Code.NAME_INVALID,
            f"{name[:LONGEST]!r} is not a repository of this service",
            hint=f"repositories are {own}/<name>, lower case",
        )
    return name


Repository = Annotated[str, Depends(_repository)]


def check_reference(reference: str) -> str:
    """A tag or a digest, as it is; raises RegistryError for anything else."""
    if ":" in reference:
        if not is_digest(reference):
            raise RegistryError(
                Code.DIGEST_INVALID,
                f"{reference[:LONGEST]!r} is not a digest",
                hint="digests are sha256:<64 hex>",
            )
    elif not TAG.fullmatch(reference):
        raise RegistryError(Code.MANIFEST_INVALID, f"{reference[:LONGEST]!r} is not a tag")
    return reference


def blob_path(name: str, digest: str) -> str:
    """The path of a blob."""
    return f"/v2/{name}/blobs/{digest}"


def upload_path(name: str, upload: str) -> str:
    """The path at which an upload continues."""
    return f"/v2/{name}/blobs/uploads/{upload}"


def manifest_path(name: str, digest: str) -> str:
    """The path of a manifest."""
    return f"/v2/{name}/manifests/{digest}"

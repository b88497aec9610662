"""Names in the registry: repositories, tags, and the paths below them."""

import re
from typing import Annotated

from fastapi import Depends

from relaxd.contract.canonical import is_digest
from service.api.oci_errors import Code, RegistryError

COMPONENT = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*"
REPOSITORY = re.compile(rf"relaxd(?:/{COMPONENT})+")
TAG = re.compile(r"[a-zA-Z0-9_][a-zA-Z0-9._-]{0,127}")
LONGEST = 255


async def _repository(name: str) -> str:
    if len(name) > LONGEST or not REPOSITORY.fullmatch(name):
        raise RegistryError(
            Code.NAME_INVALID,
            f"{name[:LONGEST]!r} is no repository here",
            hint="repositories are relaxd/<name>, lower case",
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

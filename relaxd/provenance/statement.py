"""In-toto statements of SLSA provenance v1: what was built, from what, by which builder."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from relaxd.contract.action import TOOLCHAIN, ActionKey
from relaxd.contract.canonical import is_digest
from relaxd.provenance.errors import TrustError

STATEMENT_TYPE = "https://in-toto.io/Statement/v1"
PREDICATE_TYPE = "https://slsa.dev/provenance/v1"
BUILD_TYPE = "urn:relaxd:build:v1"
OCI_MANIFEST = "application/vnd.oci.image.manifest.v1+json"


@dataclass(frozen=True)
class Subjects:
    """The subjects of a statement: digests of the bundle's OCI manifest and, by name, of its
    files.
    """

    manifest: str
    files: Mapping[str, str]


def provenance(
    subjects: Subjects, name: str, target: str, key: ActionKey, builder: str
) -> dict[str, Any]:
    """The statement about a bundle of that repository's name, without times: equal builds give
    equal statements.
    """
    parts = key.parts
    return {
        "_type": STATEMENT_TYPE,
        "subject": [
            {"name": name, "digest": _sha256(subjects.manifest), "mediaType": OCI_MANIFEST},
            *(
                {"name": file, "digest": _sha256(digest)}
                for file, digest in sorted(subjects.files.items())
            ),
        ],
        "predicateType": PREDICATE_TYPE,
        "predicate": {
            "buildDefinition": {
                "buildType": BUILD_TYPE,
                "externalParameters": {
                    "model": parts["model"],
                    "request": parts["request"],
                    "options": parts.get("options"),
                    "target": target,
                },
                "internalParameters": {"action_key": key.to_json()},
                "resolvedDependencies": _materials(parts),
            },
            "runDetails": {
                "builder": {"id": builder, "version": {"relaxd": str(parts.get("pipeline", ""))}}
            },
        },
    }


def _materials(parts: Mapping[str, Any]) -> list[dict[str, Any]]:
    materials = [{"name": "model", "digest": _sha256(parts["model"])}]
    if samples := parts["request"].get("samples"):
        materials.append({"name": "samples", "digest": _sha256(samples)})
    toolchain = parts.get("toolchain", {})
    return materials + [
        {"name": package, "uri": f"pkg:pypi/{package}@{toolchain[part]}"}
        for part, package in TOOLCHAIN.items()
        if part in toolchain
    ]


def subjects_of(statement: Mapping[str, Any]) -> Subjects:
    """The subjects of a statement of ours; raises TrustError for any other."""
    kinds = (statement.get("_type"), statement.get("predicateType"))
    if kinds != (STATEMENT_TYPE, PREDICATE_TYPE):
        raise TrustError(f"the statement is of the types {kinds}", part="statement")
    manifests: list[str] = []
    files: dict[str, str] = {}
    for subject in statement.get("subject") or ():
        match subject:
            case {"mediaType": str(kind), "digest": {"sha256": str(value)}} if kind == OCI_MANIFEST:
                manifests.append(_digest(value))
            case {"name": str(name), "digest": {"sha256": str(value)}} if name not in files:
                files[name] = _digest(value)
            case _:
                raise TrustError("the statement has a malformed subject", part="statement")
    if len(manifests) != 1 or not files:
        raise TrustError("the statement is not about one bundle", part="statement")
    return Subjects(manifests[0], files)


def _digest(value: str) -> str:
    if not is_digest(f"sha256:{value}"):
        raise TrustError("the statement has a malformed digest", part="statement")
    return f"sha256:{value}"


def _sha256(digest: str) -> dict[str, str]:
    return {"sha256": digest.removeprefix("sha256:")}

"""The bill of materials of a bundle: SPDX 2.3 in JSON."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from relaxd.contract.action import TOOLCHAIN
from relaxd.contract.canonical import canonical_bytes
from relaxd.provenance.statement import Subjects

CREATED = "1970-01-01T00:00:00Z"
"""SPDX asks for a time; a constant one keeps equal builds' documents equal."""
_NONE = "NOASSERTION"
_LICENSES = {"apache-tvm": "Apache-2.0", "apache-tvm-ffi": "Apache-2.0"}
_RUNTIME = ("libtvm_runtime", "tvm_runtime")


@dataclass(frozen=True)
class Contents:
    """The subject of the document: the bundle's digests, and the toolchain's versions by part."""

    subjects: Subjects
    toolchain: Mapping[str, str]
    relaxd: str


def sbom(contents: Contents) -> bytes:
    """The document: the bundle with its files, the packages whose code it contains, and those that
    built it.
    """
    name = contents.subjects.manifest.removeprefix("sha256:")
    files = [_file(file, digest) for file, digest in sorted(contents.subjects.files.items())]
    packages, relations = _packages(contents)
    document = {
        "spdxVersion": "SPDX-2.3",
        "dataLicense": "CC0-1.0",
        "SPDXID": "SPDXRef-DOCUMENT",
        "name": f"relaxd-bundle-{name[:12]}",
        "documentNamespace": f"https://spdx.org/spdxdocs/relaxd-bundle-{name}",
        "creationInfo": {"created": CREATED, "creators": [f"Tool: relaxd-{contents.relaxd}"]},
        "packages": [_bundle(name), *files, *packages],
        "relationships": [
            _relation("SPDXRef-DOCUMENT", "DESCRIBES", "SPDXRef-Bundle"),
            *(_relation("SPDXRef-Bundle", "CONTAINS", file["SPDXID"]) for file in files),
            *relations,
        ],
    }
    return canonical_bytes(document)


def _bundle(name: str) -> dict[str, Any]:
    return {
        "SPDXID": "SPDXRef-Bundle",
        "name": "relaxd-bundle",
        "versionInfo": f"sha256:{name}",
        "downloadLocation": _NONE,
        "filesAnalyzed": False,
        "copyrightText": _NONE,
    }


def _packages(contents: Contents) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The packages, and how each is related to the bundle."""
    has_runtime = any(file.startswith(_RUNTIME) for file in contents.subjects.files)
    built = [
        (package, contents.toolchain[part], package == "apache-tvm" and has_runtime)
        for part, package in TOOLCHAIN.items()
        if part in contents.toolchain
    ]
    packages, relations = [], []
    for package, version, contained in [("relaxd", contents.relaxd, False), *built]:
        identity = f"SPDXRef-Package-{package.replace('_', '-')}"
        packages.append(_package(identity, package, version))
        if contained:
            relations.append(_relation("SPDXRef-Bundle", "CONTAINS", identity))
        relations.append(_relation(identity, "BUILD_TOOL_OF", "SPDXRef-Bundle"))
    if "llvm" in contents.toolchain:
        packages.append(_package("SPDXRef-Package-llvm", "llvm", contents.toolchain["llvm"]))
        relations.append(_relation("SPDXRef-Package-llvm", "BUILD_TOOL_OF", "SPDXRef-Bundle"))
    return packages, relations


def _package(identity: str, name: str, version: str) -> dict[str, Any]:
    purl = {
        "referenceCategory": "PACKAGE-MANAGER",
        "referenceType": "purl",
        "referenceLocator": f"pkg:pypi/{name}@{version}",
    }
    return {
        "SPDXID": identity,
        "name": name,
        "versionInfo": version,
        "downloadLocation": _NONE,
        "filesAnalyzed": False,
        "licenseConcluded": _LICENSES.get(name, _NONE),
        "licenseDeclared": _LICENSES.get(name, _NONE),
        "copyrightText": _NONE,
    } | ({} if name in ("llvm", "relaxd") else {"externalRefs": [purl]})


def _file(name: str, digest: str) -> dict[str, Any]:
    """A file as a package of its own: SPDX wants sha1 of what it calls files."""
    return {
        "SPDXID": f"SPDXRef-File-{hashlib.sha256(name.encode()).hexdigest()[:16]}",
        "name": name,
        "packageFileName": f"./{name}",
        "primaryPackagePurpose": "FILE",
        "checksums": [
            {"algorithm": "SHA256", "checksumValue": digest.removeprefix("sha256:")},
        ],
        "downloadLocation": _NONE,
        "filesAnalyzed": False,
        "licenseConcluded": _NONE,
        "copyrightText": _NONE,
    }


def _relation(subject: str, kind: str, related: str) -> dict[str, Any]:
    return {"spdxElementId": subject, "relationshipType": kind, "relatedSpdxElement": related}

"""Writes the bill of materials of an image from inside it: SPDX 2.3 in JSON, of Python's packages
and of Debian's.

Runs in the image's build with nothing but the standard library.
"""

import hashlib
import json
import sys
from collections.abc import Iterator
from importlib.metadata import distributions
from pathlib import Path
from typing import Any, NamedTuple

DPKG = Path("/var/lib/dpkg/status")
CREATED = "1970-01-01T00:00:00Z"
"""SPDX asks for a time; a constant one keeps the documents of equal images equal."""
_NONE = "NOASSERTION"


class Package(NamedTuple):
    """One installed package, with its package URL."""

    name: str
    version: str
    purl: str


def python_packages(*path: str) -> Iterator[Package]:
    """List the packages installed for this Python, or in the folders of `path`."""
    for result in distributions(path=list(path)) if path else distributions():
        name, version = result.metadata["Name"].lower().replace("_", "-"), result.version
        yield Package(name, version, f"pkg:pypi/{name}@{version}")


def debian_packages(status: Path = DPKG) -> Iterator[Package]:
    """List the packages of dpkg's status file."""
    for paragraph in status.read_text().split("\n\n"):
        lines = (line.split(": ", 1) for line in paragraph.splitlines() if ": " in line)
        fields = {key: value for key, value in lines if not key.startswith(" ")}
        if fields.get("Status") == "install ok installed":
            name, version = fields["Package"], fields["Version"]
            architecture = fields["Architecture"]
            purl = f"pkg:deb/debian/{name}@{version}?arch={architecture}"
            yield Package(name, version, purl.replace("+", "%2B"))


def document(image: str, packages: list[Package]) -> dict[str, Any]:
    """The image contains each package once, in order of their URLs."""
    results = sorted(set(packages), key=lambda package: package.purl)
    digest = hashlib.sha256("\n".join(package.purl for package in results).encode()).hexdigest()
    identities = {package: f"SPDXRef-Package-{index}" for index, package in enumerate(results)}
    return {
        "spdxVersion": "SPDX-2.3",
        "dataLicense": "CC0-1.0",
        "SPDXID": "SPDXRef-DOCUMENT",
        "name": image,
        "documentNamespace": f"https://spdx.org/spdxdocs/{image}-{digest}",
        "creationInfo": {"created": CREATED, "creators": ["Tool: relaxd-image-sbom"]},
        "packages": [
            _entry("SPDXRef-Image", image) | {"primaryPackagePurpose": "CONTAINER"},
            *(_listed(identity, package) for package, identity in identities.items()),
        ],
        "relationships": [
            _relation("SPDXRef-DOCUMENT", "DESCRIBES", "SPDXRef-Image"),
            *(_relation("SPDXRef-Image", "CONTAINS", each) for each in identities.values()),
        ],
    }


def _entry(identity: str, name: str) -> dict[str, Any]:
    return {
        "SPDXID": identity,
        "name": name,
        "downloadLocation": _NONE,
        "filesAnalyzed": False,
        "licenseConcluded": _NONE,
        "licenseDeclared": _NONE,
        "copyrightText": _NONE,
    }


def _listed(identity: str, package: Package) -> dict[str, Any]:
    locator = {
        "referenceCategory": "PACKAGE-MANAGER",
        "referenceType": "purl",
        "referenceLocator": package.purl,
    }
    return _entry(identity, package.name) | {
        "versionInfo": package.version,
        "externalRefs": [locator],
    }


def _relation(lhs: str, kind: str, rhs: str) -> dict[str, str]:
    return {"spdxElementId": lhs, "relationshipType": kind, "relatedSpdxElement": rhs}


def main() -> None:
    """Prints the document of the image that the command line names."""
    packages = [*python_packages(), *debian_packages()]
    print(json.dumps(document(sys.argv[1], packages), indent=1))


if __name__ == "__main__":
    main()

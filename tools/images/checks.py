"""Checks of an image's files: a bill of materials that lists what is there, a size, no
compiler in the API.
"""

import json
import os
from pathlib import Path

SBOM = "org.relaxd.sbom"
API_LIMIT = 300_000_000
"""Bytes of the API's image with its base."""
_COMPILERS = {"apache-tvm", "apache-tvm-ffi", "torch", "onnx", "onnxruntime", "ziglang", "numpy"}
_LABELS = ("title", "description", "version", "revision", "licenses", "base.name")


def size(root: Path) -> int:
    """Bytes of all files, a file of several names once."""
    seen: dict[tuple[int, int], int] = {}
    for folder, _, names in os.walk(root):
        for name in names:
            result = os.lstat(os.path.join(folder, name))
            seen[result.st_dev, result.st_ino] = result.st_size
    return sum(seen.values())


def bill_of_materials(root: Path, path: str) -> dict[str, str]:
    """Version by name of the packages that the image lists."""
    document = json.loads((root / path.lstrip("/")).read_text())
    return {
        package["name"]: package["versionInfo"]
        for package in document["packages"]
        if "versionInfo" in package
    }


def faults(name: str, root: Path, labels: dict[str, str]) -> list[str]:
    """Find faults of an image that is mounted at `root`."""
    results = [
        f"no label {label}"
        for label in (*(f"org.opencontainers.image.{each}" for each in _LABELS), SBOM)
        if not labels.get(label)
    ]
    if results:
        return results
    listed = bill_of_materials(root, labels[SBOM])
    if missing := {"relaxd", "relaxd-server", "fastapi", "libc6"} - listed.keys():
        results.append(f"the bill of materials lacks {sorted(missing)}")
    if name == "api" and (there := _COMPILERS & listed.keys()):
        results.append(f"the API's image holds {sorted(there)}")
    if name == "api" and (taken := size(root)) > API_LIMIT:
        results.append(f"the API's image has {taken} bytes, at most {API_LIMIT} are allowed")
    return results

"""The bundle's files: the library, the runtime it needs, licences, reports and the manifest over all of them."""

import dataclasses
import hashlib
import importlib.util
import json
import mmap
import shutil
from pathlib import Path
from typing import Any

from compiler.errors import LinkError
from relaxd.contract.manifest import FILENAME, FileEntry, Manifest

LIBRARY = "model.so"
WEIGHTS = "weights.bin"
_CORE_RUNTIME = "libtvm_runtime.so"
_EXTRA_RUNTIME = "libtvm_runtime_extra.so"
_EXTRA_FUNCTIONS = b"tvm.contrib."
_LICENSES = "LICENSES"
_LICENSE_FILES = (("tvm", "LICENSE"), ("tvm", "NOTICE"), ("ziglang", "LICENSE"))


def add_runtime(bundle: Path) -> None:
    """Copy the TVM runtime that the bundle's library calls, and the licences; raises LinkError where it is not installed."""
    names = [_CORE_RUNTIME]
    if _mentions(bundle / LIBRARY, _EXTRA_FUNCTIONS):
        names.append(_EXTRA_RUNTIME)
    for name in names:
        source = _package("tvm") / "lib" / name
        if not source.is_file():
            raise LinkError(f"{name} is not installed", reason="runtime_missing", hint="reinstall apache-tvm from its wheel")
        shutil.copyfile(source, bundle / name)
    texts = [(_package(package) / name) for package, name in _LICENSE_FILES]
    (bundle / _LICENSES).write_text(
        "\n\n".join(f"{path.parent.name}: {path.name}\n\n{path.read_text()}" for path in texts if path.is_file())
    )


def write_report(bundle: Path, filename: str, document: dict[str, Any]) -> None:
    """Write one of the JSON reports."""
    (bundle / filename).write_text(json.dumps(document, indent=1) + "\n")


def seal(bundle: Path, manifest: Manifest) -> Manifest:
    """Write the manifest, with an entry for every file that is there; may be done again after files were added."""
    files = {path.name: _entry(path) for path in sorted(bundle.iterdir()) if path.name != FILENAME}
    sealed = dataclasses.replace(manifest, files=files)
    (bundle / FILENAME).write_text(json.dumps(sealed.to_json(), indent=1, sort_keys=True) + "\n")
    return sealed


def _entry(path: Path) -> FileEntry:
    with path.open("rb") as file:
        return FileEntry(hashlib.file_digest(file, "sha256").hexdigest(), path.stat().st_size)


def _mentions(path: Path, text: bytes) -> bool:
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        return content.find(text) >= 0


def _package(name: str) -> Path:
    """The package's folder, found without importing it."""
    spec = importlib.util.find_spec(name)
    if spec is None or not spec.submodule_search_locations:
        raise LinkError(f"{name} is not installed", reason="runtime_missing", hint="pip install 'relaxd[server]'")
    return Path(spec.submodule_search_locations[0])

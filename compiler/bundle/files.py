"""The bundle's files: the library, the runtime it needs, licences, reports and the manifest over
all of them.
"""

import dataclasses
import hashlib
import json
import mmap
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from compiler import runtimes
from compiler.errors import LinkError
from compiler.runtimes import devices, threads
from compiler.targets import Runtime, Target
from compiler.toolchain.packages import folder_of
from relaxd.contract.bundle.manifest import FILENAME, HELPERS, THREADS, FileEntry, Manifest
from relaxd.loader.machine.host import this_host

WEIGHTS = "weights.bin"
_CORE_RUNTIME = "tvm_runtime"
_EXTRA_RUNTIME = "tvm_runtime_extra"
_CUDA_RUNTIME = "tvm_runtime_cuda"
_EXTRA_FUNCTIONS = b"tvm.contrib."
_LICENSES = "LICENSES"
_LICENSE_FILES = (("tvm", "LICENSE"), ("tvm", "NOTICE"), ("ziglang", "LICENSE"))


def add_runtime(bundle: Path, target: Target) -> None:
    """Copy the TVM runtime that the bundle's library calls, unless the program that links it brings
    it.

    Raises LinkError where the runtime is not installed.
    """
    library = bundle / target.platform.library
    if target.platform.runtime is Runtime.BUNDLED:
        names = [_CORE_RUNTIME, *([_EXTRA_RUNTIME] if _mentions(library, _EXTRA_FUNCTIONS) else [])]
        names += [_CUDA_RUNTIME] if target.kind == "cuda" else []
        for name in names:
            _copy_runtime(_runtime_folder(target), _file_name(name, library.suffix), bundle)
        if target.kind == "opencl":
            _copy_runtime(devices.opencl(target).parent, devices.OPENCL, bundle)
        if target.platform.os == "linux":
            _copy_runtime(threads.threads(target).parent, THREADS, bundle)


def add_helpers(bundle: Path, target: Target) -> None:
    """Copy the threads that a loader runs a library with which needs no runtime; raises
    LinkError.
    """
    if target.platform.os == "linux" and target.platform.runtime is Runtime.BUNDLED:
        _copy_runtime(threads.helpers(target).parent, HELPERS, bundle)


def add_licences(bundle: Path) -> None:
    """Write the licences of what the compiler links."""
    texts = [(folder_of(package) / name) for package, name in _LICENSE_FILES]
    (bundle / _LICENSES).write_text(
        "\n\n".join(
            f"{path.parent.name}: {path.name}\n\n{path.read_text()}"
            for path in texts
            if path.is_file()
        )
    )


def _runtime_folder(target: Target) -> Path:
    if (target.platform.os, target.arch) == ("linux", this_host().arch):
        return folder_of("tvm") / "lib"
    return runtimes.find(target.platform)


def _file_name(library: str, suffix: str) -> str:
    return f"{'' if suffix == '.dll' else 'lib'}{library}{suffix}"


def _copy_runtime(folder: Path, name: str, bundle: Path) -> None:
    if not (folder / name).is_file():
        raise LinkError(
            f"{name} is not installed",
            reason="runtime_missing",
            hint="reinstall apache-tvm from its wheel",
        )
    shutil.copyfile(folder / name, bundle / name)


def write_report(bundle: Path, filename: str, document: dict[str, Any]) -> None:
    """Write one of the JSON reports."""
    (bundle / filename).write_text(json.dumps(document, indent=1) + "\n")


def write_texts(bundle: Path, documents: Mapping[str, Any]) -> None:
    """Write the JSON files that serving a language model takes."""
    for name, document in documents.items():
        (bundle / name).write_text(json.dumps(document, ensure_ascii=False), encoding="utf-8")


def seal(bundle: Path, manifest: Manifest) -> Manifest:
    """Write the manifest, with an entry for every file that is there; may be done again after files
    were added, of which a sealed manifest has no entry yet.
    """
    files = {
        path.name: manifest.files.get(path.name) or _entry(path)
        for path in sorted(bundle.iterdir())
        if path.name != FILENAME
    }
    sealed = dataclasses.replace(manifest, files=files)
    (bundle / FILENAME).write_text(json.dumps(sealed.to_json(), indent=1, sort_keys=True) + "\n")
    return sealed


def _entry(path: Path) -> FileEntry:
    with path.open("rb") as file:
        return FileEntry(hashlib.file_digest(file, "sha256").hexdigest(), path.stat().st_size)


def _mentions(path: Path, text: bytes) -> bool:
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        return content.find(text) >= 0

"""Which compiler this is: versions of everything that decides what a build produces, without
importing any of it.
"""

import hashlib
from functools import cache
from importlib import metadata
from pathlib import Path

from compiler.errors import ToolchainMissing
from relaxd.contract.action import TOOLCHAIN
from relaxd.errors import install_hint

_OPTIONAL = frozenset({"torch"})
"""torch reads TorchScript models, and its passes shape their graphs."""

_ROOT = Path(__file__).parents[2]
_SOURCES = ("compiler", "relaxd/contract", "relaxd/loader", "relaxd/errors.py")
"""The compiler and everything it imports, including the loader, which runs what a bundle's reports
measure.
"""

_NOT_SOURCES = (".md", ".pyc", ".pyo")


@cache
def versions() -> dict[str, str]:
    """Part name to version; `llvm` is the digest of the library that LLVM is linked into; raises
    ToolchainMissing.
    """
    parts = {}
    for part, package in TOOLCHAIN.items():
        try:
            parts[part] = _version(package)
        except ToolchainMissing:
            if part not in _OPTIONAL:
                raise
    return {
        **parts,
        "llvm": _recorded_hash("apache-tvm", "libtvm_compiler.so"),
        "pipeline": pipeline_digest(),
    }


@cache
def pipeline_digest(root: Path = _ROOT) -> str:
    """Hex digest over the sources below `root` that make a bundle; each change makes another."""
    digest = hashlib.sha256()
    for path in _sources(root):
        source = path.read_bytes()
        digest.update(f"{path.relative_to(root).as_posix()}\0{len(source)}\0".encode())
        digest.update(source)
    return digest.hexdigest()[:16]


def _sources(root: Path) -> list[Path]:
    """Every file that ships, sorted: Python, C, headers, and any kind that is added later.

    A list of suffixes would miss a new kind of file, and bundles would change under an unchanged
    key. Only bytecode, prose and hidden files of editors and tools are excluded.
    """
    paths = (
        path
        for name in _SOURCES
        for path in [root / name, *(root / name).rglob("*")]
        if path.is_file() and path.suffix not in _NOT_SOURCES
    )
    return sorted(
        path
        for path in paths
        if not any(part.startswith(".") for part in path.relative_to(root).parts)
    )


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError as error:
        raise ToolchainMissing(
            f"{package} is not installed",
            reason="missing_package",
            hint=install_hint("server"),
        ) from error


def _recorded_hash(package: str, filename: str) -> str:
    for file in metadata.files(package) or ():
        if file.name == filename and file.hash:
            return f"{file.hash.mode}:{file.hash.value}"
    raise ToolchainMissing(
        f"{package} does not record its {filename}",
        reason="unrecorded_library",
        hint=f"reinstall {package} from its wheel",
    )

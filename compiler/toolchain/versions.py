"""Which compiler this is: versions of everything that decides what a build produces, without
importing any of it.
"""

import hashlib
from functools import cache
from importlib import metadata
from pathlib import Path

from compiler.errors import ToolchainMissing

_PACKAGES = {
    "tvm": "apache-tvm",
    "tvm_ffi": "apache-tvm-ffi",
    "linker": "ziglang",
    "onnx": "onnx",
    "onnxruntime": "onnxruntime",
    "numpy": "numpy",
}
_SOURCES = ("compiler", "relaxd/contract")


@cache
def versions() -> dict[str, str]:
    """Part name to version; `llvm` is the digest of the library that LLVM is linked into; raises
    ToolchainMissing.
    """
    found = {part: _version(package) for part, package in _PACKAGES.items()}
    return {
        **found,
        "llvm": _recorded_hash("apache-tvm", "libtvm_compiler.so"),
        "pipeline": pipeline_digest(),
    }


@cache
def pipeline_digest() -> str:
    """Hex digest over the sources that make a bundle: any change of them is another pipeline."""
    root = Path(__file__).parents[2]
    digest = hashlib.sha256()
    for path in sorted(
        path
        for folder in _SOURCES
        for path in (root / folder).rglob("*")
        if path.suffix in (".py", ".c", ".cc")
    ):
        source = path.read_bytes()
        digest.update(f"{path.relative_to(root).as_posix()}\0{len(source)}\0".encode())
        digest.update(source)
    return digest.hexdigest()[:16]


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError as error:
        raise ToolchainMissing(
            f"{package} is not installed",
            reason="missing_package",
            hint="pip install 'relaxd[server]'",
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

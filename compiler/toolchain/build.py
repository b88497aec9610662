"""Builds libraries from our own sources with zig, and keeps them in the compiler's cache."""

import hashlib
import tempfile
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path

from compiler.toolchain import cache, zig


def library(
    source: Path,
    name: str,
    flags: Sequence[str],
    places: Sequence[str],
    triple: str,
    headers: Path | None = None,
) -> Path:
    """Build the source into the file `name` for zig's `triple`, unless the cache has it; raises
    LinkError.

    flags: decide the content, together with the sources and TVM's version.
    places: further flags, which hold folders of this machine and do not change the content.
    headers: the folder of our own headers that the source includes.
    """
    version = metadata.version("apache-tvm")
    recipe = _recipe(source, flags, headers)
    output = cache.directory() / "runtimes" / version / f"{triple}-{recipe}" / name
    if not output.is_file():
        output.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".build-", dir=output.parent) as scratch:
            made = Path(scratch) / name
            language = "cc" if source.suffix == ".c" else "c++"
            zig.compile_with_zig(
                *flags, *places, "-o", str(made), str(source), triple=triple, language=language
            )
            made.rename(output)
    return output


def _recipe(source: Path, flags: Sequence[str], headers: Path | None) -> str:
    """A digest over the flags and all our sources; TVM's own headers follow its version."""
    digest = hashlib.sha256(repr(tuple(flags)).encode() + source.read_bytes())
    digest.update(header_text(headers) if headers else b"")
    return digest.hexdigest()[:8]


def header_text(folder: Path) -> bytes:
    """All headers below the folder, in the order of their names."""
    return b"".join(header.read_bytes() for header in sorted(folder.rglob("*.h")))

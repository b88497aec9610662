"""Builds libraries from our own sources with zig, and keeps them in the compiler's cache."""

import hashlib
import tempfile
from collections.abc import Callable, Sequence
from importlib import metadata
from pathlib import Path

from compiler.toolchain import cache, zig


def library(
    source: Path,
    name: str,
    flags: Sequence[str],
    local_flags: Sequence[str],
    triple: str,
    headers: Path | None = None,
) -> Path:
    """Build the source into the file `name` for zig's `triple`, unless the cache has it; raises
    LinkError.

    flags: decide the content, together with the sources and TVM's version.
    local_flags: further flags, which hold folders of this machine and do not change the content.
    headers: the folder of our own headers that the source includes.
    """
    language = "cc" if source.suffix == ".c" else "c++"

    def make(output: Path) -> None:
        zig.compile_with_zig(
            *flags, *local_flags, "-o", str(output), str(source), triple=triple, language=language
        )

    recipe = digest_of(tuple(flags), source, headers)
    return build_once(Path(metadata.version("apache-tvm"), f"{triple}-{recipe}", name), make)


def build_once(name: Path, make: Callable[[Path], None]) -> Path:
    """The file of that name among the runtimes in the cache. Where it is not there, `make` writes
    it: it appears complete or not at all.
    """
    output = cache.directory() / "runtimes" / name
    if not output.is_file():
        output.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".build-", dir=output.parent) as scratch:
            temporary = Path(scratch) / name.name
            make(temporary)
            temporary.rename(output)
    return output


def digest_of(recipe: object, *sources: Path | None) -> str:
    """A digest over a recipe, our sources, and all headers in folders among them; TVM's own headers
    follow its version.
    """
    digest = hashlib.sha256(repr(recipe).encode())
    for source in sources:
        if source is not None:
            digest.update(header_text(source) if source.is_dir() else source.read_bytes())
    return digest.hexdigest()[:8]


def header_text(folder: Path) -> bytes:
    """All headers below the folder, in the order of their names."""
    return b"".join(header.read_bytes() for header in sorted(folder.rglob("*.h")))

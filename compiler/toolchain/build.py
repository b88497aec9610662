"""Libraries built from our own sources with zig, kept in the compiler's cache."""

import hashlib
import tempfile
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path

from compiler.toolchain import cache, zig


def library(
    source: Path, name: str, flags: Sequence[str], places: Sequence[str], triple: str
) -> Path:
    """The file `name` made of the source for zig's `triple`, built once; raises LinkError.

    flags: what decides the content beside the source and TVM's version; places: further flags, with
    folders of this machine.
    """
    recipe = hashlib.sha256(repr(tuple(flags)).encode() + source.read_bytes()).hexdigest()[:8]
    output = (
        cache.directory()
        / "runtimes"
        / metadata.version("apache-tvm")
        / f"{triple}-{recipe}"
        / name
    )
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

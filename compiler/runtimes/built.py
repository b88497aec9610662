"""Libraries built from our own sources with zig, kept in the compiler's cache."""

import hashlib
import tempfile
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path

from compiler import cache, link
from compiler.targets import Target


def library(source: Path, name: str, flags: Sequence[str], places: Sequence[str], target: Target) -> Path:
    """The file `name` made of the source for the target's host, built once; raises LinkError.

    flags: what decides the content beside the source and TVM's version; places: further flags, with folders of this machine.
    """
    recipe = hashlib.sha256(repr(tuple(flags)).encode() + source.read_bytes()).hexdigest()[:8]
    output = cache.directory() / "runtimes" / metadata.version("apache-tvm") / f"{target.platform.linker}-{recipe}" / name
    if not output.is_file():
        output.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".build-", dir=output.parent) as scratch:
            made = Path(scratch) / name
            language = "cc" if source.suffix == ".c" else "c++"
            link.compile_with_zig(*flags, *places, "-o", str(made), str(source), target=target, language=language)
            made.rename(output)
    return output

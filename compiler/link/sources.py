"""Compiles the C sources among what is linked: a model without kernels comes as such."""

from collections.abc import Sequence
from pathlib import Path

from compiler.targets import Target
from compiler.toolchain import zig


def compile_each(
    sources: Sequence[Path], folder: Path, target: Target, options: Sequence[str]
) -> list[Path]:
    """The objects as they are, and of each C source, for which the options are, an object in the
    folder; raises LinkError.
    """
    return [
        source if source.suffix == ".o" else _compile_one(source, folder, target, options)
        for source in sources
    ]


def _compile_one(source: Path, folder: Path, target: Target, options: Sequence[str]) -> Path:
    output = folder / f"{source.name}.o"
    zig.compile_with_zig(
        *("-O2", "-g0", "-fPIC", *options, "-c", "-o", str(output), str(source)),
        triple=target.platform.linker,
    )
    return output

"""Archives of C's functions of mathematics and of memory, from zig's sources, for platforms where
nothing else is linked.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from compiler.toolchain import zig


@dataclass(frozen=True)
class Parts:
    """sources: files in C; included: zig's folders of their headers; compiled: their flags."""

    sources: Sequence[Path]
    included: Sequence[Path]
    compiled: Sequence[str]


def sources(folders: Sequence[Path], without: Collection[str] = ()) -> list[Path]:
    """The functions of double and float in zig's folders, of two files of one name the one of the
    later folder: long double is no type of ours.
    """
    own = zig.sources()
    paths = {path.name: path for folder in folders for path in sorted((own / folder).glob("*.c"))}
    left = {*without, *(name for name in paths if name.endswith("l.c"))}
    return [path for name, path in paths.items() if name not in left]


def make_c(output: Path, triple: str, optimised: Sequence[str], parts: Parts) -> None:
    """Write an archive of all that zig has written of the C library in its own language, and of the
    parts; raises LinkError. The other hundreds of files in C take most of the time of building it
    all.
    """
    own = zig.sources()
    includes = [word for path in parts.included for word in ("-I", str(own / path))]
    zig.build_archive(
        *("-lc", *optimised, *includes),
        *("-cflags", *parts.compiled, "--", *map(str, parts.sources), str(own / "c.zig")),
        output=output,
        triple=triple,
    )


def make_arithmetic(triple: str, optimised: Sequence[str], output: Path) -> None:
    """Write an archive of the functions that LLVM calls where the machine has no instruction;
    raises LinkError.
    """
    source = str(zig.sources() / "compiler_rt.zig")
    zig.build_archive(*optimised, source, output=output, triple=triple)

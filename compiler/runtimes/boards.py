"""Functions that programs for micro-controllers are linked against to verify a library: zig's of
mathematics and of memory, of the C library of a system that runs on no board, and those for lacking
instructions.
"""

from collections.abc import Sequence
from functools import partial
from importlib import metadata
from pathlib import Path

from compiler.runtimes import mathematics
from compiler.targets import Target
from compiler.targets.architectures import board_of
from compiler.toolchain import build, zig

_MUSL = Path("libc/musl")
_SOURCES = (_MUSL / "src/math",)
_FURTHER = (_MUSL / "src/fenv/fenv.c",)
_OPTIMISED = ("-O", "ReleaseFast", "-fstrip", "-ffunction-sections", "-fdata-sections")
_COMPILED = ("-std=gnu17", "-O2", "-fno-trapping-math", "-w")


def link(arguments: Sequence[str], target: Target) -> None:
    """Link a program of what the arguments name and of the libraries; raises LinkError."""
    zig.link_elf("--gc-sections", *arguments, *map(str, libraries(target)))


def libraries(target: Target) -> list[Path]:
    """The archives, in the order in which they are searched, built at first into the compiler's
    cache, half a minute; raises LinkError.
    """
    board = board_of(target)
    optimised = (*_OPTIMISED, board.linked(target))
    recipe = build.digest_of(
        (optimised, _COMPILED, _SOURCES, _FURTHER, metadata.version("ziglang"))
    )
    folder = Path("boards", f"{board.library}-{recipe}")
    makers = (
        ("libc.a", partial(_make_c, board.headers)),
        ("libcompiler_rt.a", mathematics.make_arithmetic),
    )
    return [
        build.build_once(folder / name, partial(make, board.library, optimised))
        for name, make in makers
    ]


def _make_c(architecture: str, triple: str, optimised: Sequence[str], output: Path) -> None:
    included = (
        *(_MUSL / "src/include", _MUSL / "src/internal"),
        *(_MUSL / "arch" / architecture, _MUSL / "arch/generic"),
    )
    further = [zig.sources() / path for path in _FURTHER]
    sources = [*mathematics.sources(_SOURCES), *further]
    parts = mathematics.Parts(sources, included, _COMPILED)
    mathematics.make_c(output, triple, optimised, parts)

"""Functions that modules for WebAssembly are linked against: zig's of mathematics and of memory,
and those for lacking instructions, without the rest of its C library.
"""

from collections.abc import Sequence
from functools import partial
from importlib import metadata
from pathlib import Path

from compiler.runtimes import mathematics
from compiler.targets import Target
from compiler.toolchain import build, zig

_TOP, _BOTTOM = Path("libc/wasi/libc-top-half/musl"), Path("libc/wasi/libc-bottom-half")
_INCLUDED = (
    *(_TOP / "src/include", Path("libc/musl/src/include")),
    *(_TOP / "src/internal", Path("libc/musl/src/internal")),
    *(_TOP / "arch/wasm32", Path("libc/musl/arch/generic")),
    Path("libc/wasi/libc-top-half/headers/private"),
)
_SOURCES = (Path("libc/musl/src/math"), _TOP / "src/math", _BOTTOM / "sources/math")
"""Folders of functions of mathematics; of two files of one name the later is for WebAssembly."""
_INSTRUCTIONS = ("nearbyint.c", "nearbyintf.c")
"""Functions that WebAssembly's own folder has, among others, in one file."""
_FURTHER = (
    Path("libc/musl/src/fenv/fenv.c"),
    _BOTTOM / "sources/abort.c",
    _BOTTOM / "cloudlibc/src/libc/errno/errno.c",
)
_OPTIMISED = ("-O", "ReleaseFast", "-fstrip")
_THREADS = ("-mcpu=generic+atomics+bulk_memory",)
"""A linker puts no other objects into a module whose memory is shared."""
_COMPILED = ("-std=gnu17", "-O3", "-fno-trapping-math", "-w", "-mthread-model", "single")


def link(arguments: Sequence[str], target: Target) -> None:
    """Link a module of what the arguments name and of the libraries; raises LinkError."""
    zig.link_wasm(*arguments, *map(str, libraries(target)))


def libraries(target: Target) -> list[Path]:
    """The archives, in the order in which they are searched, built at first into the compiler's
    cache; raises LinkError.
    """
    optimised = (*_OPTIMISED, *(_THREADS if target.threads else ()))
    recipe = build.digest_of(
        (optimised, _COMPILED, _SOURCES, _FURTHER, metadata.version("ziglang"))
    )
    folder = Path("wasm", f"{target.platform.linker}-{recipe}")
    return [
        build.build_once(folder / name, partial(make, target.platform.linker, optimised))
        for name, make in (("libc.a", _make_c), ("libcompiler_rt.a", mathematics.make_arithmetic))
    ]


def _make_c(triple: str, optimised: Sequence[str], output: Path) -> None:
    own = zig.sources()
    sources = [
        *mathematics.sources(_SOURCES, without=_INSTRUCTIONS),
        *(own / path for path in _FURTHER),
    ]
    mathematics.make_c(output, triple, optimised, mathematics.Parts(sources, _INCLUDED, _COMPILED))

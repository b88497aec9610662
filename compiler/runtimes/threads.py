"""Threads for compiled code on Linux: the library that a bundle brings and the loader runs it with,
built with zig.
"""

from functools import partial
from pathlib import Path

from compiler.runtimes import linux
from compiler.targets import Target
from compiler.toolchain import build, zig
from relaxd.contract.bundle.manifest import HELPERS, THREADS

_SOURCE = Path(__file__).with_name("threads.c")
_FLAGS = ("-std=c17", "-O2", "-g0", "-fPIC", "-pthread", "-Wall", "-Wextra", "-Werror")


def helpers(target: Target) -> Path:
    """The same library for code that needs no runtime; raises LinkError."""
    return _library(HELPERS, (*_FLAGS, "-DRELAXD_STANDALONE"), target)


def threads(target: Target) -> Path:
    """The library for the target's host, built at first into the compiler's cache; raises
    LinkError.
    """
    return _library(THREADS, _FLAGS, target)


def _library(name: str, flags: tuple[str, ...], target: Target) -> Path:
    recipe = build.digest_of((flags, linux.recipe(target)), _SOURCE)
    folder = Path("threads", f"{target.platform.linker}-{recipe}")
    return build.build_once(folder / name, partial(_build, flags, target))


def _build(flags: tuple[str, ...], target: Target, output: Path) -> None:
    compiled = output.with_suffix(".o")
    zig.compile_with_zig(
        *(*flags, "-c", "-o", str(compiled), str(_SOURCE)), triple=target.platform.linker
    )
    linux.link([compiled], output, target, ("--soname", output.name))

"""Threads for compiled code on Linux: the library that a bundle brings and the loader runs it with,
built with zig.
"""

from pathlib import Path

from compiler.targets import Target
from compiler.toolchain import build
from relaxd.contract.manifest import HELPERS, THREADS

_SOURCE = Path(__file__).with_name("threads.c")
_FLAGS = (
    "-std=c17",
    "-O2",
    "-g0",
    "-fPIC",
    "-Wall",
    "-Wextra",
    "-Werror",
    "-shared",
    "-pthread",
    "-Wl,-S",
    "-Wl,--build-id=none",
)


def _flags(name: str) -> tuple[str, ...]:
    return (*_FLAGS, f"-Wl,-soname,{name}")


def helpers(target: Target) -> Path:
    """The same library for code that needs no runtime; raises LinkError."""
    flags = (*_flags(HELPERS), "-DRELAXD_STANDALONE")
    return build.library(_SOURCE, HELPERS, flags, (), target.platform.linker)


def threads(target: Target) -> Path:
    """The library for the target's host, built at first into the compiler's cache; raises
    LinkError.
    """
    return build.library(_SOURCE, THREADS, _flags(THREADS), (), target.platform.linker)

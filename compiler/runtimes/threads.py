"""Threads for compiled code on Linux: the library that a bundle brings and the loader runs it with,
built with zig.
"""

from pathlib import Path

from compiler.targets import Target
from compiler.toolchain import build
from relaxd.contract.manifest import THREADS

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
    f"-Wl,-soname,{THREADS}",
    "-Wl,-S",
    "-Wl,--build-id=none",
)


def threads(target: Target) -> Path:
    """The library for the target's host, built at first into the compiler's cache; raises
    LinkError.
    """
    return build.library(_SOURCE, THREADS, _FLAGS, (), target.platform.linker)

"""Fills the cache that all builds share with what linking for a platform takes beside a build's own
objects.
"""

from compiler.runtimes import windows
from compiler.targets import ObjectFormat, Target
from compiler.toolchain import zig


def warm_up(target: Target) -> None:
    """Build the C library's start files, or what stands for them, unless they are there: some ten
    seconds; raises LinkError.
    """
    match target.platform.object_format:
        case ObjectFormat.COFF:
            windows.library(target)
        case ObjectFormat.WASM:
            zig.warm_up_wasm(target.platform.linker)
        case _:
            zig.warm_up(target.platform.linker)

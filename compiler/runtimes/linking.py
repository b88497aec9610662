"""Fills the cache that all builds share with what linking for a platform takes beside a build's own
objects.
"""

from compiler.runtimes import linux, wasm, windows
from compiler.targets import ObjectFormat, Target
from compiler.toolchain import zig


def warm_up(target: Target) -> None:
    """Build the C library, or what stands for it, unless it is there: a second, for macOS and
    WebAssembly some five; raises LinkError.
    """
    match target.platform.object_format:
        case ObjectFormat.COFF:
            windows.library(target)
        case ObjectFormat.WASM:
            wasm.libraries(target)
        case ObjectFormat.ELF:
            linux.warm_up(target)
        case ObjectFormat.MACHO:
            zig.warm_up(target.platform.linker)

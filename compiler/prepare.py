"""Fills the cache that all builds share with what they need for a target, before a model is there:
builds themselves can only read it.
"""

from compiler.runtimes import devices, threads
from compiler.targets import ObjectFormat, Runtime, Target
from compiler.toolchain import zig
from compiler.verify.emulation import emulator, program
from relaxd.contract.options import Flavour


def prepare(target: Target) -> None:
    """Build the C library's start files and our own runtimes for the target, unless they are there;
    raises LinkError.

    The first time for a platform takes some ten seconds, and minutes where zig has to build its C++
    library.
    """
    if target.platform.runtime is Runtime.BUNDLED:
        zig.warm_up(target.platform.linker)
        if target.platform.os == "linux":
            threads.threads(target)
            threads.helpers(target)
        if target.kind == "opencl":
            devices.opencl(target)
    if target.platform.object_format is ObjectFormat.WASM:
        zig.warm_up_wasm(target.platform.linker)
    if target.emulator is None:
        return
    if emulator.lacking(target, Flavour.STANDALONE) is None:
        program.warm_up_standalone(target)
    if emulator.lacking(target, Flavour.VM) is None:
        program.warm_up(target)

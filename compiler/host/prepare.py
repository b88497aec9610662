"""Fills the cache that all builds share with what they need for a target, before a model is there:
builds themselves can only read it.
"""

from compiler.runtimes import canonical, devices, linking, threads
from compiler.targets import ObjectFormat, Runtime, Target
from compiler.verify.emulation import board, emulator, opencl, program
from compiler.verify.emulation.pc import kernel
from relaxd.contract.options import CompileOptions


def prepare(target: Target, options: CompileOptions, *, kernels: bool = False) -> None:
    """Build what builds of the target with such options share, unless it is there: what libraries
    are linked against and our own runtimes, and where the library is to be verified under an
    emulator what a static program takes that runs it, or a PC; raises CompileError.

    kernels: what finds the kernels of earlier builds, too. The first time for a platform takes
    seconds, and minutes where zig has to build a whole C or C++ library.
    """
    if kernels:
        canonical.library()
    if target.platform.runtime is Runtime.BUNDLED:
        linking.warm_up(target)
        if target.platform.os == "linux":
            threads.threads(target)
            threads.helpers(target)
        if target.kind == opencl.DEVICE:
            devices.opencl(target)
    if target.platform.object_format is ObjectFormat.WASM:
        linking.warm_up(target)
    flavour = target.flavour(options.flavour)
    if options.verify and target.emulator and emulator.explain_missing(target, flavour) is None:
        if target.platform.bare:
            board.warm_up(target)
        elif emulator.runs_on_pc(target):
            kernel.image()
        elif target.device is not None:
            opencl.runtime_of(target)
        else:
            program.warm_up(target, flavour)

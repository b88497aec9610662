"""Runs libraries for OpenCL's devices beside another processor under qemu, on a driver that is made
of the emulated processor.
"""

from pathlib import Path

from compiler import runtimes
from compiler.runtimes import devices, drivers
from compiler.targets import Target
from compiler.targets.architectures import architecture_of

DEVICE = "opencl"
NUMBER = 4
"""DLPack's number of OpenCL's devices."""
FAILURE = "relaxd.opencl.failure"
"""The function of our runtime that returns what failed on the device."""
_FLAGS = "-cl-opt-disable"
"""With these the driver takes half of the time for a kernel, most of a run's."""


def explain_missing(target: Target) -> str | None:
    """Why this machine has no driver for the target's processor; None where it has one."""
    if target.arch not in drivers.architectures():
        return f"no OpenCL driver is known for {target.arch}"
    if drivers.find(target.arch) is None:
        return f"there is no OpenCL driver for {target.arch}: run `{drivers.COMMAND}`"
    host = host_of(target)
    if not runtimes.present(host.platform):
        return (
            f"the TVM runtime for {host.platform.os} on {target.arch} is missing: run "
            f"`{runtimes.COMMAND}`"
        )
    return None


def host_of(target: Target) -> Target:
    """The target that is the emulated processor alone, with the system that runs the program."""
    return architecture_of(target.arch).entries[0]


def runtime_of(target: Target) -> list[Path]:
    """The libraries of TVM's runtime for a program that a library without any is linked into;
    raises LinkError.
    """
    host = host_of(target)
    return [runtimes.find(host.platform) / "libtvm_runtime.so", devices.opencl(host)]


def libraries(target: Target) -> Path | None:
    """The folder of the libraries that programs for the target's driver run with, None where the
    target has no device.
    """
    driver = drivers.find(target.arch) if target.device is not None else None
    return driver.libraries if driver else None


def list_words(target: Target) -> tuple[str, ...]:
    """The arguments with which qemu runs a program on the driver, which is there."""
    driver = drivers.find(target.arch)
    assert driver is not None
    variables = {
        "LD_LIBRARY_PATH": driver.libraries,
        "OCL_ICD_VENDORS": driver.registry,
        "COMPILER_PATH": driver.linkers,
        "POCL_EXTRA_BUILD_FLAGS": _FLAGS,
    }
    setting = (word for key, value in variables.items() for word in ("-E", f"{key}={value}"))
    return ("-L", str(driver.root), *setting)


def list_cache_words(folder: Path) -> tuple[str, ...]:
    """The arguments with which the driver keeps the kernels that it compiled in the folder."""
    return ("-E", f"POCL_CACHE_DIR={folder}")

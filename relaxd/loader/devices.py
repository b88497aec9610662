"""Which device drivers this machine has, of what version, and what devices they see."""

import ctypes
import sys
from dataclasses import dataclass

_COMPUTE_CAPABILITY_MAJOR, _COMPUTE_CAPABILITY_MINOR = 75, 76


@dataclass(frozen=True)
class Driver:
    """`version` as in `12.4`, empty where it does not tell; `devices`: for CUDA, each one's compute capability."""

    version: str
    devices: tuple[tuple[int, int], ...]


def probe(device: str) -> Driver | None:
    """The driver for `cuda`, `rocm`, `opencl` or `metal`; None without one that works. Opens the driver's library alone."""
    known = {"cuda": _cuda, "rocm": _rocm, "opencl": _opencl, "metal": _metal}
    return known[device]() if device in known else None


def _cuda() -> Driver | None:
    driver = _library("libcuda.so.1")
    count, version = ctypes.c_int(), ctypes.c_int()
    if driver is None or driver.cuInit(0) or driver.cuDeviceGetCount(ctypes.byref(count)):
        return None
    driver.cuDriverGetVersion(ctypes.byref(version))
    capabilities = tuple(
        (_attribute(driver, index, _COMPUTE_CAPABILITY_MAJOR), _attribute(driver, index, _COMPUTE_CAPABILITY_MINOR))
        for index in range(count.value)
    )
    return Driver(f"{version.value // 1000}.{version.value % 1000 // 10}", capabilities)


def _attribute(driver: ctypes.CDLL, device: int, attribute: int) -> int:
    value = ctypes.c_int()
    driver.cuDeviceGetAttribute(ctypes.byref(value), attribute, device)
    return value.value


def _rocm() -> Driver | None:
    driver = _library("libamdhip64.so")
    count = ctypes.c_int()
    if driver is None or driver.hipGetDeviceCount(ctypes.byref(count)):
        return None
    return Driver("", ((0, 0),) * count.value)


def _opencl() -> Driver | None:
    driver = _library("libOpenCL.so.1")
    count = ctypes.c_uint()
    if driver is None or driver.clGetPlatformIDs(0, None, ctypes.byref(count)):
        return None
    return Driver("", ((0, 0),) * count.value)


def _metal() -> Driver | None:
    """Every Mac that runs code for arm64 has a GPU, and Metal comes with the system."""
    return Driver("", ((0, 0),)) if sys.platform == "darwin" else None


def _library(name: str) -> ctypes.CDLL | None:
    try:
        return ctypes.CDLL(name)
    except OSError:
        return None

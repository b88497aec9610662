"""Finds the device drivers of this machine, their versions and their devices."""

import ctypes
import importlib.util
import sys
from dataclasses import dataclass
from pathlib import Path

CUDA_RUNTIME = "nvidia-cuda-runtime"
"""The package that holds what TVM's runtime for CUDA links against."""

_OPENCL_CPU, _OPENCL_ALL = 1 << 1, 0xFFFFFFFF
_COMPUTE_CAPABILITY_MAJOR, _COMPUTE_CAPABILITY_MINOR = 75, 76


@dataclass(frozen=True)
class Driver:
    """`version` as in `12.4`, empty where the driver does not report it; `devices`: for CUDA, each
    one's compute capability.

    software: the device that would be taken is this machine's processor, under another name.
    """

    version: str
    devices: tuple[tuple[int, int], ...]
    software: bool = False


def probe(device: str) -> Driver | None:
    """The driver for `cuda`, `rocm`, `opencl` or `metal`; None without one that works. Opens the
    driver's library alone.
    """
    known = {"cuda": _cuda, "rocm": _rocm, "opencl": _opencl, "metal": _metal}
    return known[device]() if device in known else None


def _cuda() -> Driver | None:
    driver = _library("libcuda.so.1")
    count, version = ctypes.c_int(), ctypes.c_int()
    if driver is None or driver.cuInit(0) or driver.cuDeviceGetCount(ctypes.byref(count)):
        return None
    driver.cuDriverGetVersion(ctypes.byref(version))
    capabilities = tuple(
        (
            _attribute(driver, index, _COMPUTE_CAPABILITY_MAJOR),
            _attribute(driver, index, _COMPUTE_CAPABILITY_MINOR),
        )
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
    if driver is None or driver.clGetPlatformIDs(0, None, ctypes.byref(count)) or not count.value:
        return None
    platforms = (ctypes.c_void_p * count.value)()
    driver.clGetPlatformIDs(count, platforms, None)
    every = sum(_opencl_devices(driver, platform, _OPENCL_ALL) for platform in platforms)
    processors = sum(_opencl_devices(driver, platform, _OPENCL_CPU) for platform in platforms)
    return Driver("", ((0, 0),) * every, software=every == processors)


def _opencl_devices(driver: ctypes.CDLL, platform: int | None, kind: int) -> int:
    count = ctypes.c_uint()
    failed = driver.clGetDeviceIDs(
        ctypes.c_void_p(platform), ctypes.c_uint64(kind), 0, None, ctypes.byref(count)
    )
    return 0 if failed else count.value


def _metal() -> Driver | None:
    """Every Mac that runs code for arm64 has a GPU, and Metal comes with the system."""
    return Driver("", ((0, 0),)) if sys.platform == "darwin" else None


def cuda_runtime(version: str) -> str | None:
    """The CUDA runtime library of that version's major number: in its wheel, else the
    system's; None without one.
    """
    name = f"libcudart.so.{version.partition('.')[0]}"
    spec = importlib.util.find_spec("nvidia")
    for root in map(Path, (spec.submodule_search_locations or ()) if spec else ()):
        for library in root.glob(f"cu*/lib/{name}"):
            return str(library)
    return name if _library(name) else None


def _library(name: str) -> ctypes.CDLL | None:
    try:
        return ctypes.CDLL(name)
    except OSError:
        return None

"""What this machine is: architecture, instruction set, C library and CUDA devices."""

import ctypes
import os
import platform
import sys
from dataclasses import dataclass
from pathlib import Path

_COMPUTE_CAPABILITY_MAJOR, _COMPUTE_CAPABILITY_MINOR = 75, 76
_ARCHITECTURES = {"amd64": "x86_64", "arm64": "aarch64"}


@dataclass(frozen=True)
class Host:
    """`isa` holds feature names as /proc/cpuinfo spells them; `libc` is glibc's version, None for another C library."""

    arch: str
    os: str
    isa: frozenset[str]
    libc: str | None


def this_host() -> Host:
    """The machine that runs this process; opens no library."""
    machine = platform.machine().lower()
    return Host(_ARCHITECTURES.get(machine, machine), sys.platform, _features(Path("/proc/cpuinfo")), _glibc())


def cpu_features(cpuinfo: str) -> frozenset[str]:
    """Features that every core has, from the text of /proc/cpuinfo (x86 `flags`, ARM `Features`, RISC-V `isa`).

    Linux lists only what the operating system has enabled too, so AVX there means that its registers are saved.
    """
    cores = []
    for line in cpuinfo.splitlines():
        key, _, value = line.partition(":")
        if key.strip() in ("flags", "Features"):
            cores.append(frozenset(value.split()))
        elif key.strip() == "isa":
            base, *extensions = value.strip().split("_")
            cores.append(frozenset(base.removeprefix("rv32").removeprefix("rv64")) | frozenset(extensions))
    return frozenset.intersection(*cores) if cores else frozenset()


def cuda_capabilities() -> tuple[tuple[int, int], ...] | None:
    """(major, minor) of every CUDA device, None without a working driver; opens libcuda."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return None
    count = ctypes.c_int()
    if driver.cuInit(0) or driver.cuDeviceGetCount(ctypes.byref(count)):
        return None
    return tuple(
        (_attribute(driver, i, _COMPUTE_CAPABILITY_MAJOR), _attribute(driver, i, _COMPUTE_CAPABILITY_MINOR)) for i in range(count.value)
    )


def _attribute(driver: ctypes.CDLL, device: int, attribute: int) -> int:
    value = ctypes.c_int()
    driver.cuDeviceGetAttribute(ctypes.byref(value), attribute, device)
    return value.value


def _features(cpuinfo: Path) -> frozenset[str]:
    return cpu_features(cpuinfo.read_text()) if cpuinfo.exists() else frozenset()


def _glibc() -> str | None:
    try:
        name, _, version = (os.confstr("CS_GNU_LIBC_VERSION") or "").partition(" ")
    except (ValueError, OSError):
        return None
    return version if name == "glibc" else None

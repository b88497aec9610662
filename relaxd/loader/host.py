"""Describes this machine: architecture, instruction set and C library."""

import ctypes
import os
import platform
import re
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path

_ARCHITECTURES = {"amd64": "x86_64", "arm64": "aarch64"}
_FEATURES = re.compile(r"^(flags|Features|features|isa)[ \t]*:(.*)", re.MULTILINE)
_WINDOWS_FEATURES = {"pni": 13, "cx16": 14, "ssse3": 36, "sse4_1": 37, "sse4_2": 38}
"""Numbers of the PF_* constants in winnt.h, by the names of /proc/cpuinfo."""


@dataclass(frozen=True)
class Host:
    """`isa` holds feature names as /proc/cpuinfo spells them; `libc` is glibc's version, None for
    another C library.
    """

    arch: str
    os: str
    isa: frozenset[str]
    libc: str | None


@cache
def this_host() -> Host:
    """The machine that runs this process, determined without opening a library."""
    machine = platform.machine().lower()
    isa = _windows_features() if sys.platform == "win32" else _features(Path("/proc/cpuinfo"))
    return Host(_ARCHITECTURES.get(machine, machine), sys.platform, isa, _glibc())


def cpu_features(cpuinfo: str) -> frozenset[str]:
    """Features that every core has, from the text of /proc/cpuinfo (x86 `flags`, RISC-V `isa`, the
    others `Features` or `features`).

    Linux lists only what the operating system has enabled too, so AVX there means that its
    registers are saved.
    """
    cores = []
    # Cores that are alike have lines that are equal.
    for key, value in dict.fromkeys(_FEATURES.findall(cpuinfo)):
        if key != "isa":
            cores.append(frozenset(value.split()))
        else:
            base, *extensions = value.strip().split("_")
            cores.append(
                frozenset(base.removeprefix("rv32").removeprefix("rv64")) | frozenset(extensions)
            )
    return frozenset.intersection(*cores) if cores else frozenset()


def _windows_features() -> frozenset[str]:
    """The features that IsProcessorFeaturePresent reports, and with SSE4.2 those that it never
    reports and that every processor with SSE4.2 has.
    """
    kernel = getattr(ctypes, "windll").kernel32  # noqa: B009 (mypy knows it on Windows alone)
    found = frozenset(
        name
        for name, number in _WINDOWS_FEATURES.items()
        if kernel.IsProcessorFeaturePresent(number)
    )
    return found | {"popcnt", "lahf_lm"} if "sse4_2" in found else found


def _features(cpuinfo: Path) -> frozenset[str]:
    return cpu_features(cpuinfo.read_text()) if cpuinfo.exists() else frozenset()


def _glibc() -> str | None:
    try:
        name, _, version = (os.confstr("CS_GNU_LIBC_VERSION") or "").partition(" ")
    except (ValueError, OSError):
        return None
    return version if name == "glibc" else None

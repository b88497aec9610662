"""Describes this machine: architecture, instruction set and C library."""

import ctypes
import os
import platform
import re
import sys
from contextlib import suppress
from dataclasses import dataclass
from functools import cache

_ARCHITECTURES = {"amd64": "x86_64", "arm64": "aarch64"}
_FEATURES = re.compile(r"^(flags|Features|features|isa)[ \t]*:(.*)", re.MULTILINE)
_CPUINFO = "/proc/cpuinfo"
_ALIKE = (b"\nflags", b"\nFeatures")
"""How the line of a core begins where Linux runs such cores alone together as have the same
features: on x86 and ARM.
"""
_PART = 3 << 9
"""Bytes that are read at once: what the kernel writes of one core, and little of the next."""
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
    # Python's `platform` looks for more than this, and elsewhere in the same way.
    machine = (os.uname().machine if hasattr(os, "uname") else platform.machine()).lower()
    arch = _ARCHITECTURES.get(machine, machine)
    isa = _windows_features() if sys.platform == "win32" else listed_features()
    return Host(arch, sys.platform, isa, _glibc())


def listed_features(cpuinfo: str = _CPUINFO) -> frozenset[str]:
    """Features of the machine's cores by /proc/cpuinfo; none where there is no such file.

    Linux writes it core by core as it is read, which takes longer than all else of a small load on
    a machine of many cores: where the first core has what all have, the others are not read.
    """
    content = b""
    with suppress(FileNotFoundError):
        descriptor = os.open(cpuinfo, os.O_RDONLY)
        try:
            while part := os.read(descriptor, _PART):
                content += part
                for begins in _ALIKE:
                    start = content.find(begins)
                    end = content.find(b"\n", start + 1)
                    if 0 <= start < end:
                        line = content[start:end].decode("utf-8", "replace")
                        return frozenset(line.partition(":")[2].split())
        finally:
            os.close(descriptor)
    return cpu_features(content.decode("utf-8", "replace"))


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
    features = frozenset(
        name
        for name, number in _WINDOWS_FEATURES.items()
        if kernel.IsProcessorFeaturePresent(number)
    )
    return features | {"popcnt", "lahf_lm"} if "sse4_2" in features else features


def _glibc() -> str | None:
    try:
        name, _, version = (os.confstr("CS_GNU_LIBC_VERSION") or "").partition(" ")
    except (ValueError, OSError):
        return None
    return version if name == "glibc" else None

"""What this machine's processor is and has, read from Linux."""

import platform
from dataclasses import dataclass
from functools import cache
from pathlib import Path

_CPUINFO = Path("/proc/cpuinfo")
_CACHES = Path("/sys/devices/system/cpu/cpu0/cache")
_UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


@dataclass(frozen=True)
class Caches:
    """Sizes in bytes of one core's data caches and of the shared last level; 0 where
    there is none.
    """

    l1: int
    l2: int
    l3: int


@dataclass(frozen=True)
class Host:
    """arch: `platform.machine()`; isa: feature flags as /proc/cpuinfo spells them; caches: as the
    kernel reports them.
    """

    arch: str
    isa: frozenset[str]
    caches: Caches


@cache
def host() -> Host:
    """The machine we run on."""
    return Host(platform.machine(), read_isa(_CPUINFO.read_text()), read_caches(_CACHES))


def read_isa(cpuinfo: str) -> frozenset[str]:
    """The features that every processor in the text of a /proc/cpuinfo has (`flags` on x86,
    `Features` on ARM).
    """
    lines = [line.partition(":") for line in cpuinfo.splitlines()]
    sets = [
        frozenset(value.split()) for key, _, value in lines if key.strip() in ("flags", "Features")
    ]
    return frozenset.intersection(*sets) if sets else frozenset()


def read_caches(folder: Path) -> Caches:
    """Sizes from a sysfs cache folder; where the kernel shows none (some virtual machines), those
    of a small server core.
    """
    sizes = {}
    for index in sorted(folder.glob("index*")):
        if (index / "type").read_text().strip() != "Instruction":
            text = (index / "size").read_text().strip()
            sizes[int((index / "level").read_text())] = (
                int(text[:-1]) * _UNITS[text[-1]] if text[-1] in _UNITS else int(text)
            )
    if 1 not in sizes:
        return Caches(l1=32 << 10, l2=512 << 10, l3=8 << 20)
    return Caches(l1=sizes[1], l2=sizes.get(2, 0), l3=sizes.get(3, 0))

"""Describes the machine that a profile was measured on."""

import os
import platform
from pathlib import Path

from compiler.isolation.step import Record
from relaxd.loader.machine.topology import usable_cores

_NAMES = ("model name", "Model", "uarch")
"""Under which the kernel tells a processor's name, by architecture."""


def machine(threads: int, root: Path = Path("/")) -> Record:
    """A `relaxd.contract.bundle.profile.Machine`; None is what the machine does not tell."""
    return {
        "processor": processor(root),
        "cores": len(usable_cores(root)),
        "threads": threads,
        "load_average": [round(load, 2) for load in os.getloadavg()],
        "governor": _text(root / "sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
    }


def processor(root: Path = Path("/")) -> str:
    """The processor's name, or its architecture where the kernel gives none."""
    for line in (_text(root / "proc/cpuinfo") or "").splitlines():
        name, _, value = line.partition(":")
        if name.strip() in _NAMES and value.strip():
            return value.strip()
    return platform.machine()


def _text(path: Path) -> str | None:
    try:
        return path.read_text().strip()
    except OSError:
        return None

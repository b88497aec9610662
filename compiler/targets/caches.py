"""The sizes of this machine's caches, as Linux reports them."""

from dataclasses import dataclass
from functools import cache
from pathlib import Path

_FOLDER = Path("/sys/devices/system/cpu/cpu0/cache")
_UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


@dataclass(frozen=True)
class Caches:
    """Sizes in bytes of one core's data caches and of the shared last level; 0 for a level that
    the processor does not have.
    """

    l1: int
    l2: int
    l3: int


@cache
def host_caches() -> Caches:
    """The caches of the machine that runs this process."""
    return read_caches(_FOLDER)


def read_caches(folder: Path) -> Caches:
    """Read the sizes from a sysfs cache folder. If the kernel shows none, as on some virtual
    machines, return those of a small server core.
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

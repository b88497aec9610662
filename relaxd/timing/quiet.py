"""How much of the machine's processors others use: all busy time of /proc/stat, time stolen by a
hypervisor included, less that of our own processes.

A neighbour that shares a core's caches or its execution units is not seen, nor is stolen time that
the hypervisor does not report.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

MOST = 0.05
"""The share of all processors' time that others may use while the machine counts as quiet."""
_IDLE, _GUEST = (3, 4), (8, 9)
"""Fields of the first line of /proc/stat: idle and waiting for a disk; guests' time, which the
kernel has counted as user time already.
"""
_OWN = slice(11, 15)
"""Fields of /proc/PID/stat after the name: user and system time, and those of ended children."""


@dataclass(frozen=True)
class Clock:
    """Ticks since the machine started: of all processors together, of which busy or stolen, of
    which our own.
    """

    total: int
    busy: int
    own: int


def others_between(before: Clock, after: Clock) -> float:
    """The share of the processors' time, 0 to 1, that others used; 0 where no tick has passed."""
    total = after.total - before.total
    used = (after.busy - before.busy) - (after.own - before.own)
    return min(1.0, max(0.0, used / total)) if total else 0.0


def clock(pids: Sequence[int], proc: Path = Path("/proc")) -> Clock:
    """Now; a process of `pids` that has ended counts nothing."""
    total, busy = machine_ticks((proc / "stat").read_text())
    return Clock(total, busy, sum(_ticks_of(proc / str(pid) / "stat") for pid in pids))


def machine_ticks(stat: str) -> tuple[int, int]:
    """All ticks of all processors and the busy ones, from the text of /proc/stat."""
    ticks = [int(field) for field in stat.splitlines()[0].split()[1:]]
    total = sum(value for field_index, value in enumerate(ticks) if field_index not in _GUEST)
    return total, total - sum(ticks[field_index] for field_index in _IDLE)


def process_ticks(stat: str) -> int:
    """A process's own ticks and its ended children's, from the text of /proc/PID/stat."""
    fields = stat.rpartition(")")[2].split()
    return sum(map(int, fields[_OWN]))


def _ticks_of(stat: Path) -> int:
    try:
        return process_ticks(stat.read_text())
    except (FileNotFoundError, ProcessLookupError):
        return 0

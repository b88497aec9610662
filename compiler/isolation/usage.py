"""The usage of a build's processes, by stage: processor time, and memory over time."""

from collections.abc import Callable
from dataclasses import dataclass

from relaxd.contract.states import Stage


@dataclass(frozen=True)
class StageUsage:
    """cpu_seconds: user and system time of all processes; memory_byte_seconds: their resident
    bytes, summed up over time; seconds: by the clock.
    """

    stage: Stage
    cpu_seconds: float = 0.0
    memory_byte_seconds: float = 0.0
    seconds: float = 0.0

    def add(self, cpu: float, memory: float, seconds: float) -> "StageUsage":
        """The sum of this and more of the same stage."""
        return StageUsage(
            self.stage,
            self.cpu_seconds + cpu,
            self.memory_byte_seconds + memory,
            self.seconds + seconds,
        )


OnUsage = Callable[[StageUsage], None]

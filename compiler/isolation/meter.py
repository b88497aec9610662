"""Measures what the processes of a build use: by samples, and by the count of the kernel."""

import contextlib
import time
from collections.abc import Sequence

import psutil

from compiler.isolation.usage import StageUsage
from relaxd.contract.states import Stage


class Meter:
    """Adds up samples of a family of processes; `settle` adds what they missed."""

    def __init__(self) -> None:
        self._at = time.monotonic()
        self._cpu = 0.0
        self._stages: dict[Stage, StageUsage] = {}

    def sample(self, family: Sequence[psutil.Process], stage: Stage) -> int:
        """Count what was used since the last sample for the stage; the bytes resident now."""
        cpu, resident = 0.0, 0
        for process in family:
            with contextlib.suppress(psutil.NoSuchProcess, psutil.AccessDenied):
                times = process.cpu_times()
                # Of children that have ended and were waited for; the others are in the family.
                ended = times.children_user + times.children_system
                cpu += times.user + times.system + ended
                resident += process.memory_info().rss
        now = time.monotonic()
        seconds, self._at = now - self._at, now
        # A process that has ended is missing from the sum until its parent has waited for it.
        used, self._cpu = max(cpu - self._cpu, 0.0), max(cpu, self._cpu)
        usage = self._stages.get(stage, StageUsage(stage))
        self._stages[stage] = usage.add(used, resident * seconds, seconds)
        return resident

    def count_shared_once(self, family: Sequence[psutil.Process]) -> int:
        """The bytes resident now, those that several processes share counted once; takes the kernel
        a walk over all pages. A process that has just been forked shares all of its parent's.
        """
        resident = 0
        for process in family:
            with contextlib.suppress(psutil.NoSuchProcess):
                try:
                    resident += process.memory_full_info().pss
                except psutil.AccessDenied:
                    resident += process.memory_info().rss
        return resident

    def settle(self, cpu_seconds: float | None, stage: Stage) -> None:
        """Count for the stage what samples missed of all that the family used, which has ended;
        None where that is not known.
        """
        if cpu_seconds is not None and cpu_seconds > self._cpu:
            usage = self._stages.get(stage, StageUsage(stage))
            self._stages[stage] = usage.add(cpu_seconds - self._cpu, 0.0, 0.0)
            self._cpu = cpu_seconds

    def stages(self) -> list[StageUsage]:
        """The usage of each stage so far, in the order in which they began."""
        return list(self._stages.values())

"""Callbacks around the passes of a pipeline: what they may see, timing, and a check."""

import time
from collections import defaultdict

import tvm

from compiler.passes.framework.base import Pass, Phase


class Observer:
    """Sees the module before and after each pass; a subclass overrides what it needs."""

    def before(self, step: Pass, module: tvm.IRModule) -> None:
        """Called before `step` runs."""

    def after(self, step: Pass, module: tvm.IRModule) -> None:
        """Called after `step` has run."""

    def after_failure(self, step: Pass, module: tvm.IRModule) -> None:
        """Called with the module that `step` was given, once it has failed."""

    def phase_ended(self, phase: Phase, module: tvm.IRModule) -> None:
        """Called after the last pass of a phase."""


class Timing(Observer):
    """Measures the seconds that passes take."""

    def __init__(self) -> None:
        self.rows: list[tuple[Phase, str, float]] = []
        self._started = 0.0

    def before(self, step: Pass, module: tvm.IRModule) -> None:
        """Starts the clock."""
        self._started = time.perf_counter()

    def after(self, step: Pass, module: tvm.IRModule) -> None:
        """Notes the seconds."""
        self.rows.append((step.phase, step.name, time.perf_counter() - self._started))

    def totals(self) -> list[tuple[Phase, str, float]]:
        """The rows, with one row for a pass that runs once for each kernel."""
        total: dict[tuple[Phase, str, int], float] = defaultdict(float)
        for position, (phase, name, seconds) in enumerate(self.rows):
            total[phase, name, 0 if phase.is_by_kernel else position] += seconds
        return [(phase, name, seconds) for (phase, name, _), seconds in total.items()]

    def phases(self) -> dict[Phase, float]:
        """Seconds of each phase, in the order in which they ran."""
        total: dict[Phase, float] = defaultdict(float)
        for phase, _, seconds in self.rows:
            total[phase] += seconds
        return dict(total)

"""All engines on one model: each in a process of its own, asked one at a time, in rounds that
alternate between them.
"""

from __future__ import annotations

import contextlib
import json
import statistics
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from benchmarks.cpu.rows import Point
from tests import models

TOLERANCE = 1e-3
"""Largest difference from ONNX Runtime, relative to the greater of 1 and the output's range, that
counts as right.
"""


@dataclass(frozen=True)
class Plan:
    """engines by name; rounds of `seconds` each per engine and point; `threads` for every
    engine.
    """

    engines: tuple[str, ...]
    rounds: int
    seconds: float
    threads: int


class Contestant:
    """One worker process."""

    def __init__(self, engine: str, folder: Path) -> None:
        """Start it and wait until it has compiled."""
        self.engine = engine
        command = [sys.executable, "-m", "benchmarks.cpu.worker", engine, str(folder)]
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self.ready = self._answer()

    def ask(self, **request: Any) -> dict[str, Any]:
        """The worker's answer; `{"error": ...}` where the engine failed or its process has died."""
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(json.dumps(request) + "\n")
            self._process.stdin.flush()
        return self._answer()

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith("{"):
                return dict(json.loads(line))
        return {"error": f"exit status {self._process.wait()}"}

    def end(self) -> None:
        """Let the process go."""
        self._process.kill()
        self._process.wait()


def prepare(name: str, points: Sequence[Point], threads: int, folder: Path) -> None:
    """Write the subject and the seeded inputs of every point."""
    real, path = models.MODELS[name], models.path_of(name)
    graph = onnx.load(path, load_external_data=False).graph
    stored = {tensor.name for tensor in graph.initializer}
    names = [value.name for value in graph.input if value.name not in stored]
    for index, point in enumerate(points):
        np.savez(
            folder / f"feed_{index}.npz", **dict[str, Any](models.feed_of(name, point, seed=index))
        )
    subject = {
        "name": name,
        "path": str(path),
        "names": names,
        "dims": dict(real.dims),
        "inputs": dict(real.inputs),
        "threads": threads,
    }
    (folder / "subject.json").write_text(json.dumps(subject))


MEASURED = ("relaxd", "onnxruntime", "openvino")
"""Engines whose memory is measured: a fresh process each time, which the others would compile in
once more.
"""


def contest(plan: Plan, points: Sequence[Point], folder: Path) -> list[dict[str, Any]]:
    """For each point, what each engine did: median and quartiles in ms, memory in bytes, difference
    to ONNX Runtime, or its error.
    """
    with _contestants(plan.engines, folder) as contestants:
        outcomes = [_point(plan, contestants, index, folder) for index in range(len(points))]
        for index, outcome in enumerate(outcomes):
            for one in contestants:
                if one.engine == "relaxd" and "milliseconds" in outcome[one.engine]:
                    outcome[one.engine] |= one.ask(point=index, matmuls=True)
    for index, outcome in enumerate(outcomes):
        for engine in plan.engines:
            if engine in MEASURED and "error" not in outcome[engine]:
                outcome[engine] |= _memory(engine, index, folder)
    return outcomes


def _memory(engine: str, index: int, folder: Path) -> dict[str, Any]:
    with _contestants([engine], folder) as (fresh,):
        return fresh.ask(point=index, memory=True)


@contextlib.contextmanager
def _contestants(engines: Sequence[str], folder: Path) -> Iterator[list[Contestant]]:
    started: list[Contestant] = []
    try:
        for engine in engines:
            started.append(Contestant(engine, folder))
        yield started
    finally:
        for contestant in started:
            contestant.end()


def _point(
    plan: Plan, contestants: Sequence[Contestant], index: int, folder: Path
) -> dict[str, Any]:
    outcomes: dict[str, dict[str, Any]] = {one.engine: dict(one.ready) for one in contestants}
    racing = [one for one in contestants if "error" not in one.ready]
    for one in racing:
        outcomes[one.engine] |= one.ask(
            point=index, save=str(folder / f"made_{one.engine}_{index}.npz")
        )
    times: dict[str, list[float]] = {
        one.engine: [] for one in racing if "error" not in outcomes[one.engine]
    }
    for _ in range(plan.rounds):
        for one in racing:
            if one.engine in times:
                answer = one.ask(point=index, seconds=plan.seconds)
                times[one.engine] += answer.pop("milliseconds", [])
                outcomes[one.engine] |= answer
    for engine, found in times.items():
        outcomes[engine] |= _spread(found) | {"difference": _difference(folder, engine, index)}
    return outcomes


def _spread(times: Sequence[float]) -> dict[str, float]:
    low, middle, high = statistics.quantiles(times, n=4)
    return {"milliseconds": middle, "low": low, "high": high, "calls": len(times)}


def _difference(folder: Path, engine: str, index: int) -> float | None:
    """Worst over the outputs; None where ONNX Runtime is not among the engines."""
    if not (folder / f"made_onnxruntime_{index}.npz").exists():
        return None
    with (
        np.load(folder / f"made_onnxruntime_{index}.npz") as want,
        np.load(folder / f"made_{engine}_{index}.npz") as made,
    ):
        return max(
            float(
                np.abs(made[key].astype(np.float64) - want[key]).max(initial=0)
                / max(1.0, np.abs(want[key]).max(initial=0))
            )
            for key in want.files
        )

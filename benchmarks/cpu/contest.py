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

from benchmarks.cpu import rounds, subjects
from benchmarks.cpu.rows import Point

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
        self.pid = self._process.pid
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
        """Kill the process."""
        self._process.kill()
        self._process.wait()


def prepare(name: str, points: Sequence[Point], threads: int, folder: Path) -> None:
    """Write the subject and the seeded inputs of every point."""
    model = subjects.find(name)
    graph = onnx.load(model.path, load_external_data=False).graph
    stored = {tensor.name for tensor in graph.initializer}
    names = [value.name for value in graph.input if value.name not in stored]
    for index, point in enumerate(points):
        np.savez(folder / f"feed_{index}.npz", **dict[str, Any](model.feed(point, index)))
    subject = {
        "name": name,
        "path": str(model.path),
        "names": names,
        "dims": dict(model.dims),
        "inputs": dict(model.inputs),
        "threads": threads,
    }
    (folder / "subject.json").write_text(json.dumps(subject))


MEASURED = ("relaxd", "onnxruntime", "openvino")
"""Engines whose memory is measured: a fresh process each time, which the others would compile in
once more.
"""


def contest(plan: Plan, points: Sequence[Point], folder: Path) -> list[dict[str, Any]]:
    """For each point: `engines`, what each did (median and quartiles of its rounds in ms, the
    rounds, memory in bytes, difference to ONNX Runtime, or its error), and `others`, the share of
    the processors that others used in each round.
    """
    with start_workers(plan.engines, folder) as contestants:
        outcomes = [_point(plan, contestants, index, folder) for index in range(len(points))]
        for index, outcome in enumerate(outcomes):
            for one in contestants:
                if one.engine == "relaxd" and "rounds" in outcome["engines"][one.engine]:
                    outcome["engines"][one.engine] |= one.ask(point=index, matmuls=True)
    for index, outcome in enumerate(outcomes):
        for engine in plan.engines:
            if engine in MEASURED and "error" not in outcome["engines"][engine]:
                outcome["engines"][engine] |= _memory(engine, index, folder)
    return outcomes


def _memory(engine: str, index: int, folder: Path) -> dict[str, Any]:
    with start_workers([engine], folder) as (fresh,):
        return fresh.ask(point=index, memory=True)


@contextlib.contextmanager
def start_workers(engines: Sequence[str], folder: Path) -> Iterator[list[Contestant]]:
    """The engines' workers, each ready or with its error in `ready`; they end with the context."""
    contestants: list[Contestant] = []
    try:
        for engine in engines:
            contestants.append(Contestant(engine, folder))
        yield contestants
    finally:
        for contestant in contestants:
            contestant.end()


def _point(
    plan: Plan, contestants: Sequence[Contestant], index: int, folder: Path
) -> dict[str, Any]:
    outcomes: dict[str, dict[str, Any]] = {one.engine: dict(one.ready) for one in contestants}
    for one in contestants:
        if "error" not in one.ready:
            answer = one.ask(point=index, save=str(folder / f"made_{one.engine}_{index}.npz"))
            answer.pop("saved", None)
            outcomes[one.engine] |= answer
    racing = [one for one in contestants if "error" not in outcomes[one.engine]]
    done = rounds.in_turns(racing, {"point": index, "seconds": plan.seconds}, plan.rounds)
    for one in racing:
        outcomes[one.engine] |= times_of(one.engine, done)
        outcomes[one.engine]["difference"] = _difference(folder, one.engine, index)
    return {"engines": outcomes, "others": [round(one.others, 4) for one in done]}


def times_of(engine: str, done: Sequence[rounds.Round]) -> dict[str, Any]:
    """An engine's part of the rounds: each one's median in ms, their median and quartiles, and the
    number of calls; or its error.
    """
    times = [one.milliseconds[engine] for one in done if engine in one.milliseconds]
    if len(times) < len(done):
        errors = (one.errors[engine] for one in done if engine in one.errors)
        return {"error": next(errors, "failed in a round that was not kept")}
    low, middle, high = statistics.quantiles(times, n=4)
    calls = sum(one.calls[engine] for one in done)
    return {"rounds": times, "milliseconds": middle, "low": low, "high": high, "calls": calls}


def _difference(folder: Path, engine: str, index: int) -> float | None:
    """The greatest difference of the outputs; None without ONNX Runtime among the engines."""
    if not (folder / f"made_onnxruntime_{index}.npz").exists():
        return None
    with (
        np.load(folder / f"made_onnxruntime_{index}.npz") as expected,
        np.load(folder / f"made_{engine}_{index}.npz") as outputs,
    ):
        return max(
            float(
                np.abs(outputs[key].astype(np.float64) - expected[key]).max(initial=0)
                / max(1.0, np.abs(expected[key]).max(initial=0))
            )
            for key in expected.files
        )

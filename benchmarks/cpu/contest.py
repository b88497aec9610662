"""All engines on one model: each in a process of its own, asked one at a time, in rounds that
alternate between them.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from benchmarks.cpu import subjects
from benchmarks.cpu.rows import Point
from relaxd.timing.contestants import measure_point, start_workers

WORKER = "benchmarks.cpu.worker"


@dataclass(frozen=True)
class Plan:
    """engines by name; rounds of `seconds` each per engine and point; `threads` for every
    engine.
    """

    engines: tuple[str, ...]
    rounds: int
    seconds: float
    threads: int


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
    with start_workers(plan.engines, folder, WORKER) as contestants:
        outcomes = [
            measure_point(
                contestants,
                index,
                folder,
                seconds=plan.seconds,
                count=plan.rounds,
                reference="onnxruntime",
            )
            for index in range(len(points))
        ]
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
    with start_workers([engine], folder, WORKER) as (fresh,):
        return fresh.ask(point=index, memory=True)

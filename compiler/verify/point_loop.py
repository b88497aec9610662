"""The loop over points that every side of verify runs in its own process: inputs from files,
outputs to files, within a budget of processor time.
"""

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from compiler.isolation.step import Record
from compiler.isolation.work_time import Clock, clock_work
from compiler.verify.inputs import array_file
from compiler.verify.inputs.repeated import Repeat
from compiler.verify.time_budget import TimeBudget

Arrays: TypeAlias = Mapping[str, np.ndarray[Any, Any]]


class PointFailed(Exception):
    """The side has no outputs for these inputs; the text says why."""


class PointLate(Exception):
    """The time of the side was over before it had outputs for these inputs; the text says so."""


def run_points(
    spec: Record,
    record: Callable[[Record], None],
    run: Callable[[Arrays], Arrays],
    *,
    failure: str = "failed",
    clock: Clock | None = None,
    timer: Clock = time.perf_counter,
) -> None:
    """Call `run` with the inputs of each point, write the outputs it returns, record the point.

    spec: seconds by `clock`, by default those in which this process computes, and points as
    `{index, effort, inputs, outputs}` with paths of array files and what `TimeBudget` takes; with
    `repeat`, the fields of a Repeat, `run` gets the distinct rows alone. A record is `{index,
    seconds}` for a point that went well, the seconds by `timer`, with `skipped` where the budget
    would not have lasted, or where `run` raised PointLate, and with the key `failure` where it
    raised PointFailed.
    """
    clock = clock or clock_work()
    budget = TimeBudget(spec["seconds"], clock, "s of processor time")
    for point in spec["points"]:
        if objection := budget.objection(point["effort"]):
            record({"index": point["index"], "skipped": objection})
            continue
        inputs = array_file.read(Path(point["inputs"]))
        repeat = Repeat(**point["repeat"]) if "repeat" in point else None
        started, began = clock(), timer()
        try:
            outputs = run(inputs) if repeat is None else repeat.extend(run(repeat.shorten(inputs)))
        except PointLate as error:
            record({"index": point["index"], "skipped": str(error)})
            continue
        except PointFailed as error:
            record({"index": point["index"], failure: str(error)})
            continue
        seconds = timer() - began
        budget.took(point["effort"], clock() - started)
        array_file.write(Path(point["outputs"]), outputs)
        record({"index": point["index"], "seconds": seconds})

"""A model that is run on a board and by ONNX Runtime, one step of its state after the other."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import onnxruntime

from compiler.verify.run.board import Program
from relaxd.loader.samples import dim_values, draw

RUNS = 6


@dataclass(frozen=True)
class Subject:
    """A model, and what a request declares of it; state: outputs that the next run gets as the
    inputs of those names.
    """

    name: str
    path: Path
    dims: Mapping[str, str]
    consts: Mapping[str, int] = field(default_factory=dict)
    state: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Agreement:
    """counted: by the board, of the last run; difference: the largest of any output of any run."""

    counted: Mapping[str, int]
    runs: int
    difference: float


def compare(subject: Subject, program: Program) -> Agreement:
    """Runs of both, each of which goes on from the state that it computed itself."""
    session = onnxruntime.InferenceSession(subject.path, providers=["CPUExecutionProvider"])
    items = program.manifest.inputs
    consts = {name: np.array(value, np.int64) for name, value in subject.consts.items()}
    ours: dict[str, np.ndarray] = {}
    theirs: dict[str, np.ndarray] = {}
    counted: dict[str, int] = {}
    names, difference = [output.name for output in session.get_outputs()], 0.0
    for run in range(RUNS):
        sampled = draw(items, dim_values(program.manifest.dims, {}), run)
        if run == 0:
            sampled |= {name: np.zeros_like(sampled[name]) for name in subject.state.values()}
        created, counted = program.measure(sampled | ours)
        expected = dict(zip(names, session.run(None, sampled | theirs | consts), strict=True))
        for name, array in expected.items():
            difference = max(difference, float(np.abs(created[name] - array).max()))
        ours = {to: created[of] for of, to in subject.state.items()}
        theirs = {to: expected[of] for of, to in subject.state.items()}
    return Agreement(counted, RUNS, difference)

"""A model that is run on a board and by its framework, one step of its state after the other."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime

from compiler.verify.run.board import Program
from relaxd.loader.samples import dim_values, draw

Arrays = Mapping[str, np.ndarray[Any, Any]]
TFLITE = ".tflite"


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


def compare(subject: Subject, program: Program, runs: int) -> Agreement:
    """Runs of both, each of which goes on from the state that it computed itself."""
    reference = _reference_of(subject, program)
    items = program.manifest.inputs
    ours: Arrays = {}
    theirs: Arrays = {}
    counted: dict[str, int] = {}
    difference = 0.0
    for run in range(runs):
        sampled = draw(items, dim_values(program.manifest.dims, {}), run)
        if run == 0:
            sampled |= {name: np.zeros_like(sampled[name]) for name in subject.state.values()}
        created, counted = program.measure({**sampled, **ours})
        expected = reference({**sampled, **theirs})
        for name, array in expected.items():
            apart = np.abs(created[name].astype("float64") - array.astype("float64"))
            difference = max(difference, float(apart.max()))
        ours = {to: created[of] for of, to in subject.state.items()}
        theirs = {to: expected[of] for of, to in subject.state.items()}
    return Agreement(counted, runs, difference)


def _reference_of(subject: Subject, program: Program) -> Callable[[Arrays], Arrays]:
    """The framework's outputs by name, of inputs by name."""
    if subject.path.suffix == TFLITE:
        return _interpreter(subject.path, program)
    session = onnxruntime.InferenceSession(subject.path, providers=["CPUExecutionProvider"])
    consts = {name: np.array(value, np.int64) for name, value in subject.consts.items()}
    names = [output.name for output in session.get_outputs()]
    return lambda inputs: dict(zip(names, session.run(None, {**inputs, **consts}), strict=True))


def _interpreter(path: Path, program: Program) -> Callable[[Arrays], Arrays]:
    """TFLite's interpreter with its reference kernels; tensors are in the order of the file's."""
    from ai_edge_litert.interpreter import Interpreter, OpResolverType

    interpreter = Interpreter(
        str(path), experimental_op_resolver_type=OpResolverType.BUILTIN_REF, num_threads=1
    )
    interpreter.allocate_tensors()
    manifest = program.manifest

    def run(inputs: Arrays) -> Arrays:
        for detail, item in zip(interpreter.get_input_details(), manifest.inputs, strict=True):
            interpreter.set_tensor(detail["index"], inputs[item.name])
        interpreter.invoke()
        details = interpreter.get_output_details()
        return {
            item.name: interpreter.get_tensor(detail["index"])
            for detail, item in zip(details, manifest.outputs, strict=True)
        }

    return run

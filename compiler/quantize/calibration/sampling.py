"""Shows the samples' values of a model to what learns from them."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from compiler.ir.files.model_file import LoadedScript, open_model
from compiler.ir.graph.draws import Draw
from compiler.ir.onnx.model.nodes import Graph, fixed_inputs
from compiler.isolation.step import Record
from compiler.quantize.calibration.pieces import Pieces
from compiler.quantize.onnx.row_matmuls import RowMatmuls
from compiler.verify.inputs import array_file
from compiler.verify.reference import feeding
from compiler.verify.reference.onnx import wide

Array = np.ndarray[Any, Any]
Result = TypeVar("Result")
Learn = Callable[[Array], Result | None]


def learn_values(
    spec: Record, learners_of: Callable[[RowMatmuls], Mapping[str, Learn[Result]]], *, static: bool
) -> dict[str, Result]:
    """Learn from each value in the model that rounds nothing; values of which `learn` returns None
    are left out.

    spec: model, consts and draws of the reference, inputs (a file of `array_file`), and folder.
    learners_of: by value, in the order of the nodes that read it. static: as in `RowMatmuls`.
    """
    folder = Path(spec["folder"])
    draws = {name: Draw.from_json(draw) for name, draw in spec["draws"].items()}
    inputs = {name: wide(array) for name, array in array_file.read(Path(spec["inputs"])).items()}
    loaded = open_model(Path(spec["model"]))
    assert not isinstance(loaded, LoadedScript)
    learners = learners_of(RowMatmuls(loaded.proto, static=static))
    graph = Graph(loaded.proto, fixed_inputs(loaded.proto, spec["consts"]))

    def run(feeds: Mapping[str, Any]) -> dict[str, Result]:
        pieces = Pieces(graph, tuple(learners), dict(feeds), folder)
        results = {value: learn(pieces.read_next()) for value, learn in learners.items()}
        return {value: one for value, one in results.items() if one is not None}

    return dict(feeding.run(run, inputs, draws))

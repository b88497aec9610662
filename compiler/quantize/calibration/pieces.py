"""Runs a model piece by piece: each computes one value, from what earlier pieces left."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import helper

from compiler.ir.onnx.model.nodes import Graph
from compiler.verify.reference.onnx import OnnxRuntime, save_model

Array = np.ndarray[Any, Any]


class Pieces:
    """Every node runs once at most. Constants of the graph may change between two pieces: what has
    not run yet reads what they are then.

    wanted: the values that will be asked for, in the order of the nodes that take them; values: the
    model's inputs; folder: for the file of a piece.
    """

    def __init__(
        self, graph: Graph, wanted: Sequence[str], values: dict[str, Array], folder: Path
    ) -> None:
        self._graph, self._folder = graph, folder
        self._wanted, self._values = list(wanted), dict(values)
        self._left = graph.behind(wanted)

    def read_next(self) -> Array:
        """The next of the values that are wanted."""
        name = self._wanted.pop(0)
        if name not in self._values:
            self._run(name)
        current = self._values[name]
        later = self._later()
        self._values = {key: value for key, value in self._values.items() if key in later}
        return current

    def _later(self) -> set[str]:
        """Names of the values that later pieces may read."""
        return {*self._wanted} | {name for node in self._left for name in self._graph.takes[node]}

    def _run(self, name: str) -> None:
        graph = self._graph
        nodes = frozenset(graph.behind([name], frozenset(self._left)))
        self._left -= nodes
        later = self._later() | {name}
        outputs = [value for node in sorted(nodes) for value in graph.gives[node] if value in later]
        feeds = {value: self._values[value] for value in graph.inputs_of(nodes)}
        inputs = [_declare(value, array) for value, array in feeds.items()]
        model = graph.model_of(nodes, inputs, [onnx.ValueInfoProto(name=one) for one in outputs])
        # One thread: the order of sums, and so their last bits, depend on how many there are.
        engine = OnnxRuntime(str(save_model(model, self._folder, "piece")), threads=1)
        self._values |= engine.run(feeds, {})


def _declare(name: str, array: Array) -> onnx.ValueInfoProto:
    """An input, whose axes stay open as they are in the model: by known ones, shape inference
    would compute numbers of which ONNX Runtime's operators refuse some.
    """
    kind = helper.np_dtype_to_tensor_dtype(array.dtype)
    return helper.make_tensor_value_info(name, kind, [None] * array.ndim)

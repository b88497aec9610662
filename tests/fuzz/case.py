"""A graph with the dims of its inputs and the points that it is run at, in memory and as files."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import helper

Array = np.ndarray[Any, Any]
Inputs = dict[str, tuple[str | int, ...]]
OPSETS = [helper.make_opsetid("", 19), helper.make_opsetid("ai.onnx.ml", 3)]


@dataclass(frozen=True)
class Case:
    """points: extents of every dim; quantized: whether values are quantized on the way;
    seed: of the inputs.
    """

    model: onnx.ModelProto
    points: tuple[dict[str, int], ...]
    quantized: bool
    seed: int

    @property
    def inputs(self) -> Inputs:
        return {
            info.name: tuple(
                axis.dim_param or axis.dim_value for axis in info.type.tensor_type.shape.dim
            )
            for info in self.model.graph.input
        }

    @property
    def dims(self) -> dict[str, tuple[int, int]]:
        """Each dim of the inputs: its least and its greatest extent."""
        names = {axis for axes in self.inputs.values() for axis in axes if isinstance(axis, str)}
        return {
            name: (
                min(point[name] for point in self.points),
                max(point[name] for point in self.points),
            )
            for name in sorted(names)
        }

    def feed(self, point: dict[str, int]) -> dict[str, Array]:
        """Standard normal inputs at the point."""
        feed = {}
        for position, (name, axes) in enumerate(self.inputs.items()):
            shape = [point[axis] if isinstance(axis, str) else axis for axis in axes]
            random = np.random.default_rng((self.seed, position, *shape))
            feed[name] = random.standard_normal(shape).astype("float32")
        return feed

    def with_graph(
        self,
        nodes: Sequence[onnx.NodeProto],
        outputs: Sequence[str],
        inputs: Inputs | None = None,
        constants: Sequence[onnx.TensorProto] | None = None,
        points: Sequence[dict[str, int]] | None = None,
    ) -> "Case":
        """The case with another graph, less what its outputs do not need."""
        arguments = self.model.graph.initializer if constants is None else constants
        model = model_of(nodes, self.inputs if inputs is None else inputs, arguments, outputs)
        return replace(self, model=model, points=tuple(self.points if points is None else points))

    def write(self, stem: Path, about: dict[str, Any]) -> Path:
        """Writes `stem`.onnx and .json; returns the former."""
        path = stem.with_suffix(".onnx")
        stem.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(self.model.SerializeToString())
        document = {
            **about,
            "dims": self.dims,
            "points": self.points,
            "quantized": self.quantized,
            "inputs_seed": self.seed,
            "operators": [node.op_type for node in self.model.graph.node],
        }
        stem.with_suffix(".json").write_text(json.dumps(document, indent=1) + "\n")
        return path


def read(path: Path) -> Case:
    """The inverse of `Case.write`."""
    document = json.loads(path.with_suffix(".json").read_text())
    return Case(
        onnx.load(path), tuple(document["points"]), document["quantized"], document["inputs_seed"]
    )


def model_of(
    nodes: Sequence[onnx.NodeProto],
    inputs: Inputs,
    constants: Sequence[onnx.TensorProto],
    outputs: Sequence[str],
) -> onnx.ModelProto:
    """A model of the nodes, inputs and constants that the outputs need."""
    needed, retained = set(outputs), []
    for node in reversed(nodes):
        if needed & set(node.output):
            retained.append(node)
            needed |= taken_by(node)
    graph = helper.make_graph(
        retained[::-1],
        "graph",
        [
            helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, axes)
            for name, axes in inputs.items()
            if name in needed
        ],
        [helper.make_empty_tensor_value_info(name) for name in outputs],
        [constant for constant in constants if constant.name in needed],
    )
    return helper.make_model(graph, opset_imports=OPSETS, ir_version=9)


def taken_by(node: onnx.NodeProto) -> set[str]:
    """The names that the node reads, its branches' included."""
    names = {name for name in node.input if name}
    for attribute in node.attribute:
        if attribute.type == onnx.AttributeProto.GRAPH:
            own = {name for inner in attribute.g.node for name in inner.output}
            own |= {info.name for info in attribute.g.input}
            for inner in attribute.g.node:
                names |= taken_by(inner) - own
            names |= {info.name for info in attribute.g.output} - own
    return names

"""Puts a rewritten ONNX graph together: nodes, the constants that they read, and no other ones."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from compiler.ir.files.node_labels import label_of


@dataclass
class NodeWriter:
    """nodes: in order; constants: that they read beside those of the model, by name."""

    nodes: list[onnx.NodeProto] = field(default_factory=list)
    constants: dict[str, onnx.TensorProto] = field(default_factory=dict)

    def node(
        self, op: str, output: str, *inputs: str, label: onnx.NodeProto | None = None, **more: Any
    ) -> str:
        """Adds a node of one output, which it gives; label: the node that it is named after."""
        name = "" if label is None else label_of(label)
        self.nodes.append(helper.make_node(op, list(inputs), [output], name=name, **more))
        return output

    def constant(self, name: str, value: Any) -> str:
        """The name of a constant; a name has one value."""
        named = f"{name}_constant"
        if named not in self.constants:
            array = np.ascontiguousarray(value).reshape(np.shape(value))
            self.constants[named] = numpy_helper.from_array(array, named)
        return named

    def put_into(self, model: onnx.ModelProto) -> None:
        """Replaces the nodes of the main graph, and drops constants that nothing reads any more."""
        graph = model.graph
        del graph.node[:]
        graph.node.extend(self.nodes)
        graph.initializer.extend(self.constants.values())
        read = {one.name for one in graph.output}.union(*map(names_read, graph.node))
        dropped = {one.name for one in graph.initializer} - read
        for part in (graph.initializer, graph.input):
            retained = [one for one in part if one.name not in dropped]
            del part[:]
            part.extend(retained)


def names_read(node: onnx.NodeProto) -> set[str]:
    """The values that a node and the graphs within it read."""
    names = set(node.input)
    for attribute in node.attribute:
        for graph in (attribute.g, *attribute.graphs):
            names |= {name for inner in graph.node for name in names_read(inner)}
            names |= {one.name for one in graph.output}
    return names

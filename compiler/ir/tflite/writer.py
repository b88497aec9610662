"""An ONNX graph that grows operator by operator, with the functions of integer arithmetic."""

from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from compiler.ir.tflite import functions

Array = np.ndarray[Any, Any]
OPSET = 21


def operator_of(node: str) -> str:
    """The label of the operator that a node was written for."""
    return node.partition("/")[0]


class Writer:
    """Nodes, constants by name, and which functions the nodes call.

    label: what the next nodes are called, with a number behind all but the first; taken: names of
    inputs and outputs.
    """

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.constants: dict[str, Array] = {}
        self.label = ""
        self.taken: frozenset[str] = frozenset()
        self._count = 0
        self._shared: dict[tuple[Any, ...], str] = {}

    def begin(self, label: str) -> None:
        """Name the nodes that follow."""
        self.label, self._count = label, 0

    def put(self, operator: str, *inputs: str, outputs: int = 1, **attributes: Any) -> Any:
        """Add a node; gives the name of its output, a list of names for several."""
        name = self.label if not self._count else f"{self.label}/{self._count}"
        self._count += 1
        names = [self._own(f"{name}:{index}") for index in range(outputs)]
        domain = functions.DOMAIN if operator in functions.FUNCTIONS else ""
        node = helper.make_node(operator, inputs, names, name=name, domain=domain, **attributes)
        self.nodes.append(node)
        return names if outputs > 1 else names[0]

    def give(self, value: str, name: str) -> None:
        """Add an output of the model by its name."""
        self.nodes.append(helper.make_node("Identity", [value], [name], name=name))

    def _own(self, name: str) -> str:
        """A name that no input or output has."""
        return self._own(f"{name}_") if name in self.taken else name

    def constant(self, value: Any, dtype: str | None = None) -> str:
        """The name of a constant; equal small ones are one."""
        array = np.asarray(value, dtype)
        if array.size > 16:
            return self.named_constant(f"constant/{len(self.constants)}", array)
        key = (array.dtype.str, array.shape, array.tobytes())
        if key not in self._shared:
            self._shared[key] = self.named_constant(f"constant/{len(self.constants)}", array)
        return self._shared[key]

    def named_constant(self, name: str, array: Array) -> str:
        """The name of a constant of the file."""
        name = self._own(name)
        self.constants[name] = array
        return name

    def model(
        self, inputs: list[onnx.ValueInfoProto], outputs: list[onnx.ValueInfoProto]
    ) -> onnx.ModelProto:
        """The whole of it, with the constants that something reads."""
        graph = helper.make_graph(self.nodes, "main", inputs, outputs)
        opsets = [helper.make_opsetid("", OPSET), helper.make_opsetid(functions.DOMAIN, 1)]
        called = {node.op_type for node in self.nodes if node.domain == functions.DOMAIN}
        bodies = [functions.FUNCTIONS[name] for name in sorted(called)]
        model = helper.make_model(graph, opset_imports=opsets, functions=bodies, ir_version=10)
        read = {name for node in self.nodes for name in node.input}
        for name, array in self.constants.items():
            if name in read:
                data = np.ascontiguousarray(array).reshape(array.shape)
                model.graph.initializer.append(numpy_helper.from_array(data, name))
        return model

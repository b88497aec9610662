"""The nodes of an ONNX graph: what each takes and gives, and which only compute shapes and
constants.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import onnx
from onnx import AttributeProto, helper, numpy_helper

from compiler.ir.files.node_labels import label_of, op_of

_SHAPES = ("Shape", "Size")
_RANDOM = ("Random", "Bernoulli", "Multinomial")


@dataclass(frozen=True)
class Graph:
    """The top-level nodes of a model in their order, which ONNX requires to be topological.

    fixed: by name, the inputs of the model that the request fixes.
    """

    model: onnx.ModelProto
    fixed: Mapping[str, onnx.TensorProto]

    @cached_property
    def constants(self) -> Mapping[str, onnx.TensorProto | onnx.SparseTensorProto]:
        """Initialisers and fixed inputs by name."""
        graph = self.model.graph
        return {
            **{tensor.name: tensor for tensor in graph.initializer},
            **{tensor.values.name: tensor for tensor in graph.sparse_initializer},
            **self.fixed,
        }

    @cached_property
    def nodes(self) -> tuple[onnx.NodeProto, ...]:
        """In the model's order."""
        return tuple(self.model.graph.node)

    @cached_property
    def takes(self) -> tuple[tuple[str, ...], ...]:
        """By node, the values that it or a subgraph of it reads."""
        return tuple(tuple(dict.fromkeys(_taken(node))) for node in self.nodes)

    @cached_property
    def gives(self) -> tuple[tuple[str, ...], ...]:
        """By node, the values that it computes."""
        return tuple(tuple(name for name in node.output if name) for node in self.nodes)

    @cached_property
    def producers(self) -> Mapping[str, int]:
        """The node that computes a value."""
        return {name: index for index, names in enumerate(self.gives) for name in names}

    @cached_property
    def bookkeeping(self) -> frozenset[int]:
        """Nodes that depend on shapes and constants alone: a cut computes them itself, so that what
        follows from a dim in the model follows from it in the cut.
        """
        result: set[int] = set()
        known = set(self.constants)
        for index, node in enumerate(self.nodes):
            plain = node.domain in ("", "ai.onnx")
            measures = plain and node.op_type in _SHAPES
            draws = plain and node.op_type.startswith(_RANDOM)
            if not draws and (measures or known.issuperset(self.takes[index])):
                result.add(index)
                known.update(self.gives[index])
        return frozenset(result)

    def behind(self, values: Iterable[str], within: frozenset[int] | None = None) -> set[int]:
        """The nodes that the values depend on, over nodes of `within` alone where that is given."""
        result: set[int] = set()
        waiting = list(values)
        while waiting:
            index = self.producers.get(waiting.pop())
            if index is None or index in result or (within is not None and index not in within):
                continue
            result.add(index)
            waiting.extend(self.takes[index])
        return result

    def complete(self, nodes: Iterable[int]) -> frozenset[int]:
        """The nodes, and the bookkeeping that they depend on."""
        chosen = frozenset(nodes)
        taken = [name for index in chosen for name in self.takes[index]]
        return chosen | self.behind(taken, self.bookkeeping)

    def inputs_of(self, nodes: frozenset[int]) -> tuple[str, ...]:
        """The values that the nodes take and neither compute nor find among the constants."""
        own = {name for index in nodes for name in self.gives[index]}
        taken = (name for index in sorted(nodes) for name in self.takes[index])
        return tuple(
            dict.fromkeys(name for name in taken if name not in own and name not in self.constants)
        )

    def model_of(
        self,
        nodes: Collection[int],
        inputs: Sequence[onnx.ValueInfoProto],
        outputs: Sequence[onnx.ValueInfoProto],
    ) -> onnx.ModelProto:
        """Nodes as a model of their own, with the constants that they read."""
        taken = {name for index in nodes for name in self.takes[index]}
        constants = [tensor for name, tensor in self.constants.items() if name in taken]
        model = onnx.ModelProto()
        model.ir_version = self.model.ir_version
        model.opset_import.extend(self.model.opset_import)
        model.functions.extend(self.model.functions)
        model.graph.CopyFrom(
            helper.make_graph(
                [self.nodes[index] for index in sorted(nodes)],
                "cut",
                inputs,
                outputs,
                [tensor for tensor in constants if isinstance(tensor, onnx.TensorProto)],
                sparse_initializer=[
                    tensor for tensor in constants if isinstance(tensor, onnx.SparseTensorProto)
                ],
            )
        )
        return model

    def label(self, index: int) -> str:
        """The node's name, or that of its first output."""
        return label_of(self.nodes[index])

    def op(self, index: int) -> str:
        """The node's operator, with its domain where that is not the standard one."""
        return op_of(self.nodes[index])


def fixed_inputs(model: onnx.ModelProto, consts: Mapping[str, Any]) -> dict[str, onnx.TensorProto]:
    """The inputs that the request fixes to a scalar, as tensors; axes of any size become 1."""
    tensors = {}
    for entry in model.graph.input:
        if entry.name not in consts:
            continue
        kind = entry.type.tensor_type
        shape = [axis.dim_value or 1 for axis in kind.shape.dim]
        dtype = helper.tensor_dtype_to_np_dtype(kind.elem_type)
        array = np.full(shape, consts[entry.name]).astype(dtype)
        tensors[entry.name] = numpy_helper.from_array(array, entry.name)
    return tensors


def _taken(node: onnx.NodeProto) -> Iterator[str]:
    yield from (name for name in node.input if name)
    for attribute in node.attribute:
        if attribute.type == AttributeProto.GRAPH:
            yield from _captured(attribute.g)
        for graph in attribute.graphs:
            yield from _captured(graph)


def _captured(graph: onnx.GraphProto) -> Iterator[str]:
    """The values of the graph around it that a subgraph reads."""
    own = {value.name for value in graph.input} | {tensor.name for tensor in graph.initializer}
    own |= {tensor.values.name for tensor in graph.sparse_initializer}
    for node in graph.node:
        yield from (name for name in _taken(node) if name not in own)
        own.update(node.output)
    yield from (value.name for value in graph.output if value.name not in own)

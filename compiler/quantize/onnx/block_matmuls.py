"""The matmuls of an ONNX model by block-wise quantized weights, and a model that quantizes what
they multiply to 8 bits, block by block.
"""

from collections.abc import Collection, Iterator, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from compiler.ir.files.node_labels import label_of
from compiler.ir.onnx.model.matmuls import LEVEL, OPERATORS
from compiler.ir.onnx.model.opsets import opset_of
from compiler.ir.onnx.model.walking import walk
from relaxd.contract.narrow import QuantizedLayers
from relaxd.contract.options import Precision

OPERATOR = "MatMulNBits"
LEAST_OPSET = 13
"""From which on the nodes that round are written here."""
_BITS = (4, 8)
_AXES_ARE_INPUTS = 18
_LEAST = 2.0**-120
"""What the greatest magnitude of a block is taken for at least, so that its inverse is finite."""


def is_quantizable(node: onnx.NodeProto) -> bool:
    """True for a matmul by blocks whose left side can be quantized."""
    return node.op_type == OPERATOR and _attributes(node).get("bits", 4) in _BITS


def has_blocks(model: onnx.ModelProto) -> bool:
    """True if some matmul can quantize its left side block by block."""
    return any(map(is_quantizable, _nodes(model)))


def layers_of(model: onnx.ModelProto) -> QuantizedLayers:
    """The matmuls that quantize where all that can are asked to, and the reasons of the others."""
    layers: list[str] = []
    others: dict[str, str] = {}
    for node in _nodes(model):
        if is_quantizable(node):
            layers.append(label_of(node))
        elif node.op_type == OPERATOR or node.op_type in OPERATORS:
            others[label_of(node)] = "it multiplies no weights in blocks of 4 or 8 bits"
    return QuantizedLayers(Precision.INT8, tuple(dict.fromkeys(layers)), others)


def set_level(model: onnx.ModelProto, level: int, labels: Collection[str] | None = None) -> int:
    """Set the `accuracy_level` of the matmuls by blocks that can quantize, in place; returns how
    many there are. labels: of those that are meant; None for all.
    """
    count = 0
    for node in _quantizable(model, labels):
        left = [one for one in node.attribute if one.name != LEVEL]
        del node.attribute[:]
        node.attribute.extend([*left, helper.make_attribute(LEVEL, level)])
        count += 1
    return count


def _quantizable(
    model: onnx.ModelProto, labels: Collection[str] | None
) -> Iterator[onnx.NodeProto]:
    for node in filter(is_quantizable, _nodes(model)):
        if labels is None or label_of(node) in labels:
            yield node


def quantize_rows(
    model: onnx.ModelProto, perturbation: float = 0.0, labels: Collection[str] | None = None
) -> None:
    """Quantize what is multiplied by blocks in nodes of their own, in place; the matmuls themselves
    quantize nothing any more.

    labels: of the matmuls in front of which numbers are quantized; None for all. perturbation:
    what is added to every number before, as a share of the greatest of its block: it moves a few
    numbers to their other neighbour.
    """
    set_level(model, 0)
    float16s = frozenset(_float16_constants(model))
    writer = _Writer(opset_of(model.opset_import), float16s, perturbation, labels)
    for nodes in _lists(model):
        writer.rewrite(nodes)


def _nodes(model: onnx.ModelProto) -> Iterator[onnx.NodeProto]:
    inner = (node for function in model.functions for node in function.node)
    return walk((*model.graph.node, *inner))


def _lists(model: onnx.ModelProto) -> Iterator[Any]:
    """The lists of nodes: of the graphs that nodes have, the innermost first, of functions, and of
    the graph.
    """
    inner = [
        graph.node
        for node in _nodes(model)
        for attribute in node.attribute
        for graph in (attribute.g, *attribute.graphs)
        if graph.node
    ]
    # Rewriting a list copies the graphs in it.
    yield from (*reversed(inner), *(one.node for one in model.functions), model.graph.node)


def _float16_constants(model: onnx.ModelProto) -> Iterator[str]:
    """The float16 constants."""
    for constant in model.graph.initializer:
        if constant.data_type == TensorProto.FLOAT16:
            yield constant.name
    for node in _nodes(model):
        value = _attributes(node).get("value")
        if node.op_type == "Constant" and getattr(value, "data_type", 0) == TensorProto.FLOAT16:
            yield node.output[0]


def _attributes(node: onnx.NodeProto) -> dict[str, Any]:
    """The values of a node's attributes, but for those that a function takes of its call."""
    own = (one for one in node.attribute if not one.ref_attr_name)
    return {one.name: helper.get_attribute_value(one) for one in own}


class _Writer:
    """Writes the nodes that round in front of those that multiply."""

    def __init__(
        self,
        opset: int,
        float16s: frozenset[str],
        perturbation: float,
        labels: Collection[str] | None,
    ) -> None:
        self.opset, self.float16s, self.perturbation, self.labels = (
            opset,
            float16s,
            perturbation,
            labels,
        )
        self.nodes: list[onnx.NodeProto] = []
        self.name = ""

    def rewrite(self, nodes: Any) -> None:
        """Changes one list of nodes."""
        self.nodes = []
        done: dict[tuple[str, int, int], str] = {}
        for node in list(nodes):
            if is_quantizable(node) and (self.labels is None or label_of(node) in self.labels):
                attributes = _attributes(node)
                key = (node.input[0], attributes["K"], attributes["block_size"])
                if key not in done:
                    self.name = f"{node.input[0]}__{label_of(node)}__rounded"
                    half = node.input[2] in self.float16s
                    done[key] = self._quantized(*key, TensorProto.FLOAT16 if half else None)
                node.input[0] = done[key]
            self.nodes.append(node)
        copied = [onnx.NodeProto.FromString(one.SerializeToString()) for one in self.nodes]
        del nodes[:]
        nodes.extend(copied)

    def _node(self, op: str, *inputs: str, **attributes: Any) -> str:
        output = f"{self.name}{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, list(inputs), [output], **attributes))
        return output

    def _constant(self, values: Sequence[int] | float) -> str:
        dtype = np.float32 if isinstance(values, float) else np.int64
        return self._node("Constant", value=numpy_helper.from_array(np.array(values, dtype)))

    def _quantized(self, x: str, depth: int, block: int, back: int | None) -> str:
        """The name of x [.., depth] after quantization; back: the dtype of x, None for float32."""
        blocks = -(-depth // block)
        real = self._node("Cast", x, to=TensorProto.FLOAT)
        if depth % block:
            rows = self._node("Reshape", real, self._constant([-1, depth]))
            pads = self._constant([0, 0, 0, blocks * block - depth])
            real = self._node("Pad", rows, pads)
        real = self._round(self._node("Reshape", real, self._constant([-1, block])))
        if depth % block:
            rows = self._node("Reshape", real, self._constant([-1, blocks * block]))
            ends = [self._constant([one]) for one in (0, depth, 1)]
            real = self._node("Slice", rows, *ends)
        real = self._node("Reshape", real, self._node("Shape", x))
        return real if back is None else self._node("Cast", real, to=back)

    def _round(self, rows: str) -> str:
        """Rows that are one block each: the greatest magnitude becomes 127."""
        sizes, most = self._node("Abs", rows), self._constant(127.0)
        if self.opset < _AXES_ARE_INPUTS:
            greatest = self._node("ReduceMax", sizes, axes=[1], keepdims=1)
        else:
            greatest = self._node("ReduceMax", sizes, self._constant([1]), keepdims=1)
        step = self._node("Div", greatest, most)
        inverse = self._node("Div", most, self._node("Max", greatest, self._constant(_LEAST)))
        scaled = self._node("Mul", rows, inverse)
        if self.perturbation:
            scaled = self._node("Add", scaled, self._constant(127.0 * self.perturbation))
        return self._node("Mul", self._node("Round", scaled), step)

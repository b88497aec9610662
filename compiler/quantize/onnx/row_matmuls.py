"""The matmuls and convolutions of an ONNX model by constant float weights, and a model in which
they multiply integers of 8 bits: weights are rounded with a scale for each column, what multiplies
them with a scale for each row, or for each image, that a run finds, or to a grid that samples gave.

Channels of a row can be scaled beforehand, by numbers that the rows of the weights take back
(SmoothQuant, Xiao et al. 2022).
"""

from collections.abc import Collection, Iterator, Mapping
from functools import cached_property
from types import MappingProxyType

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from compiler.ir.files.node_labels import label_of
from compiler.ir.onnx.model.matmuls import OPERATORS, matmul_labels
from compiler.ir.onnx.model.opsets import opset_of
from compiler.quantize.onnx.matmuls import Array, Grid
from compiler.quantize.onnx.row_writer import RowWriter, upright
from relaxd.contract.narrow import QuantizedLayers
from relaxd.contract.options import Precision

LEAST_DEPTH = 16
LEAST_COLUMNS = 8
LEAST_CHANNELS = 8
"""Smaller products leave most of an instruction unused."""
DEEPEST = 1 << 17
"""Products of one sum that 32 bits hold."""


class RowMatmuls:
    """The matmuls and convolutions of one model by constant weights."""

    def __init__(
        self,
        model: onnx.ModelProto,
        scales: Mapping[str, Array] = MappingProxyType({}),
        grids: Mapping[str, Grid] | None = None,
        *,
        static: bool = False,
    ) -> None:
        """The main graph's alone: others run in loops and branches. scales, grids: as in
        `MatmulQuantization`; static: there are grids, or will be.
        """
        self.model, self.scales, self.grids = model, scales, grids
        self._static = static or grids is not None
        self.constants: Mapping[str, onnx.TensorProto] = {
            tensor.name: tensor
            for tensor in model.graph.initializer
            if tensor.data_type == TensorProto.FLOAT
        } | {
            node.output[0]: attribute.t
            for node in model.graph.node
            if node.op_type == "Constant" and node.domain in ("", "ai.onnx")
            for attribute in node.attribute
            if attribute.name == "value" and attribute.t.data_type == TensorProto.FLOAT
        }

    @cached_property
    def layers(self) -> QuantizedLayers:
        """The matmuls that are quantized, and why others are not."""
        objections = {
            label_of(node): self.objection(node)
            for node in self.model.graph.node
            if node.op_type in OPERATORS and node.domain in ("", "ai.onnx")
        }
        others = {label: why for label, why in objections.items() if why is not None}
        layers = tuple(label for label, why in objections.items() if why is None)
        return QuantizedLayers(Precision.INT8, layers, others)

    @cached_property
    def _alone(self) -> frozenset[str]:
        return matmul_labels(self.model)

    def objection(self, node: onnx.NodeProto) -> str | None:
        """Why a product stays as it is, None where it rounds."""
        if node.op_type not in OPERATORS or node.domain not in ("", "ai.onnx"):
            return "it is no product"
        if label_of(node) not in self._alone:
            return "its name is another node's, too"
        tensor = self.constants.get(node.input[1])
        if tensor is None:
            return "its right side is no constant of floats"
        # To find the scale of an image is a pass over it, which few channels are not worth.
        channels = 1 if self._static else LEAST_CHANNELS
        objection = _objection(node, list(tensor.dims), channels)
        objection = objection or self._objection_to_numbers(tensor)
        if objection is None and self.grids is not None and node.input[0] not in self.grids:
            return "samples gave no finite numbers of what it multiplies"
        return objection

    def _objection_to_numbers(self, tensor: onnx.TensorProto) -> str | None:
        weight = numpy_helper.to_array(tensor)
        if not np.isfinite(weight).all():
            return "its weights are not finite"
        return "its weights are integers" if np.array_equal(weight, np.rint(weight)) else None

    @property
    def matrices(self) -> dict[str, list[Array]]:
        """By value, the quantizable weights [depth, columns] that multiply it."""
        matrices: dict[str, list[Array]] = {}
        for node in self._nodes_of(frozenset(self.layers.layers)):
            if node.op_type != "Conv":
                weight = numpy_helper.to_array(self.constants[node.input[1]])
                matrices.setdefault(node.input[0], []).append(upright(node, weight))
        return matrices

    @property
    def images(self) -> frozenset[str]:
        """The values that convolutions round."""
        return self._images(frozenset(self.layers.layers))

    @property
    def values(self) -> list[str]:
        """The values that products round, in the order of the nodes."""
        layers = frozenset(self.layers.layers)
        return list(dict.fromkeys(node.input[0] for node in self._nodes_of(layers)))

    def _images(self, labels: Collection[str]) -> frozenset[str]:
        nodes = self._nodes_of(labels)
        return frozenset(node.input[0] for node in nodes if node.op_type == "Conv")

    def _nodes_of(self, labels: Collection[str]) -> Iterator[onnx.NodeProto]:
        for node in self.model.graph.node:
            if label_of(node) in labels and node.op_type in OPERATORS:
                yield node

    def quantize(
        self, perturbation: float = 0.0, labels: Collection[str] | None = None
    ) -> onnx.ModelProto:
        """The model with matmuls on integers.

        labels: some of `layers`; None for all. perturbation: what is added to every number before
        it is quantized, as a share of its row's greatest: a few numbers move to their other
        neighbour.
        """
        result = onnx.ModelProto()
        result.CopyFrom(self.model)
        layers = frozenset(self.layers.layers if labels is None else labels)
        stored = frozenset() if self.grids is None else self._images(layers)
        writer = RowWriter(
            opset_of(result.opset_import), perturbation, self.scales, self.grids or {}, stored
        )
        for node in self.model.graph.node:
            if label_of(node) in layers and node.op_type in OPERATORS:
                writer.multiply(node, numpy_helper.to_array(self.constants[node.input[1]]))
            else:
                writer.keep(node)
        writer.put_into(result)
        return result


def _objection(node: onnx.NodeProto, dims: list[int], channels: int) -> str | None:
    """Why a product by weights of those extents stays as it is."""
    attributes = {one.name: helper.get_attribute_value(one) for one in node.attribute}
    if node.op_type == "Conv":
        if attributes.get("group", 1) != 1:
            return "its channels are in groups"
        if len(dims) != 4:
            return "it is no convolution of images"
        if dims[1] < channels:
            return f"its images have fewer than {channels} channels"
        columns, depth = dims[0], int(np.prod(dims[1:]))
    else:
        if len(dims) != 2 or attributes.get("transA", 0):
            return "its weights are no matrix on the right"
        depth, columns = reversed(dims) if attributes.get("transB", 0) else dims
    if not LEAST_DEPTH <= depth <= DEEPEST:
        return f"its sums have fewer than {LEAST_DEPTH} products, or more than {DEEPEST}"
    return f"it has fewer than {LEAST_COLUMNS} columns" if columns < LEAST_COLUMNS else None

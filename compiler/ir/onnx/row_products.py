"""The matmuls and convolutions of an ONNX model by constant float weights, and a model in which
they multiply integers of 8 bits: weights are rounded with a scale for each column, what multiplies
them with a scale for each row, or for each image, that a run finds.

Channels of a row can be scaled beforehand, by numbers that the rows of the weights take back
(SmoothQuant, Xiao et al. 2022).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import cached_property
from types import MappingProxyType
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from compiler.ir.onnx.products import OPERATORS, label_of, products_of
from compiler.ir.onnx.walking import walk
from relaxd.contract.narrow import NarrowLayers
from relaxd.contract.options import Precision

LEAST_DEPTH = 16
LEAST_COLUMNS = 8
LEAST_CHANNELS = 8
"""Smaller products leave most of an instruction unused."""
DEEPEST = 1 << 17
"""Products of one sum that 32 bits hold."""
MOST = 127.0
_LEAST = 2.0**-120
"""What the greatest magnitude of a row is taken for at least, so that its inverse is finite."""
_AXES_ARE_INPUTS = 18
_ENDING = "__row_bytes"

Array = np.ndarray[Any, Any]


class RowProducts:
    """The products of one model; what they multiply is found once."""

    def __init__(
        self, model: onnx.ModelProto, scales: Mapping[str, Array] = MappingProxyType({})
    ) -> None:
        """Of the main graph alone: others run in loops and branches. scales: as in `Narrowing`."""
        self.model, self.scales = model, scales
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
    def layers(self) -> NarrowLayers:
        """The products that round, and why others do not."""
        found = {
            label_of(node): self.objection(node)
            for node in self.model.graph.node
            if node.op_type in OPERATORS and node.domain in ("", "ai.onnx")
        }
        kept = {label: why for label, why in found.items() if why is not None}
        layers = tuple(label for label, why in found.items() if why is None)
        return NarrowLayers(Precision.INT8, layers, kept)

    @cached_property
    def _alone(self) -> frozenset[str]:
        return products_of(self.model)

    def objection(self, node: onnx.NodeProto) -> str | None:
        """Why a product stays as it is, None where it rounds."""
        if node.op_type not in OPERATORS or node.domain not in ("", "ai.onnx"):
            return "it is no product"
        if label_of(node) not in self._alone:
            return "its name is another node's, too"
        tensor = self.constants.get(node.input[1])
        if tensor is None:
            return "its right side is no constant of floats"
        return _objection(node, list(tensor.dims)) or self._objection_to_numbers(tensor)

    def _objection_to_numbers(self, tensor: onnx.TensorProto) -> str | None:
        weight = numpy_helper.to_array(tensor)
        if not np.isfinite(weight).all():
            return "its weights are not finite"
        return "its weights are integers" if np.array_equal(weight, np.rint(weight)) else None

    @property
    def matrices(self) -> dict[str, list[Array]]:
        """By value, the weights [depth, columns] that products round and multiply it by."""
        found: dict[str, list[Array]] = {}
        layers = frozenset(self.layers.layers)
        for node in self.model.graph.node:
            if label_of(node) in layers and node.op_type in ("MatMul", "Gemm"):
                weight = numpy_helper.to_array(self.constants[node.input[1]])
                found.setdefault(node.input[0], []).append(_upright(node, weight))
        return found

    def rounded(self, nudge: float = 0.0, labels: Collection[str] | None = None) -> onnx.ModelProto:
        """The model with products on integers.

        labels: of these products, some of `layers`; None for all of them. nudge: what is added to
        every number before it is rounded, of the greatest of its row, which moves a few numbers to
        their other neighbour.
        """
        made = onnx.ModelProto()
        made.CopyFrom(self.model)
        writer = _Writer(_opset(made), nudge, self.scales)
        layers = frozenset(self.layers.layers if labels is None else labels)
        for node in self.model.graph.node:
            if label_of(node) in layers and node.op_type in OPERATORS:
                writer.multiply(node, numpy_helper.to_array(self.constants[node.input[1]]))
            else:
                writer.nodes.append(node)
        del made.graph.node[:]
        made.graph.node.extend(writer.nodes)
        made.graph.initializer.extend(writer.constants.values())
        _drop_unused(made)
        return made


def _objection(node: onnx.NodeProto, dims: list[int]) -> str | None:
    """Why a product by weights of those extents stays as it is."""
    attributes = {one.name: helper.get_attribute_value(one) for one in node.attribute}
    if node.op_type == "Conv":
        if attributes.get("group", 1) != 1:
            return "its channels are in groups"
        if len(dims) != 4:
            return "it is no convolution of images"
        if dims[1] < LEAST_CHANNELS:
            return f"its images have fewer than {LEAST_CHANNELS} channels"
        columns, depth = dims[0], int(np.prod(dims[1:]))
    else:
        if len(dims) != 2 or attributes.get("transA", 0):
            return "its weights are no matrix on the right"
        depth, columns = reversed(dims) if attributes.get("transB", 0) else dims
    if not LEAST_DEPTH <= depth <= DEEPEST:
        return f"its sums have fewer than {LEAST_DEPTH} products, or more than {DEEPEST}"
    return f"it has fewer than {LEAST_COLUMNS} columns" if columns < LEAST_COLUMNS else None


def _opset(model: onnx.ModelProto) -> int:
    return next((o.version for o in model.opset_import if o.domain in ("", "ai.onnx")), 1)


def _drop_unused(model: onnx.ModelProto) -> None:
    """Removes weights that no node reads any more."""
    read = {name for node in walk(model.graph.node) for name in node.input}
    read |= {output.name for output in model.graph.output}
    kept = [tensor for tensor in model.graph.initializer if tensor.name in read]
    given = [one for one in model.graph.input if one.name in read or not _is_weight(model, one)]
    del model.graph.initializer[:]
    model.graph.initializer.extend(kept)
    del model.graph.input[:]
    model.graph.input.extend(given)


def _is_weight(model: onnx.ModelProto, given: onnx.ValueInfoProto) -> bool:
    return any(tensor.name == given.name for tensor in model.graph.initializer)


class _Writer:
    """Writes nodes, and the constants that they read."""

    def __init__(self, opset: int, nudge: float, scales: Mapping[str, Array]) -> None:
        self.opset, self.nudge, self.scales = opset, nudge, scales
        self.nodes: list[onnx.NodeProto] = []
        self.constants: dict[str, onnx.TensorProto] = {}
        self.rows: dict[tuple[str, tuple[int, ...]], tuple[str, str]] = {}

    def multiply(self, node: onnx.NodeProto, weight: Array) -> None:
        """The product of a node, its operands rounded."""
        attributes = {one.name: helper.get_attribute_value(one) for one in node.attribute}
        if node.op_type == "Conv":
            self._convolve(node, weight)
            return
        weight = _upright(node, weight)
        if node.input[0] in self.scales:
            weight = weight * self.scales[node.input[0]][:, None]
        whole, scales = by_column(weight, 0)
        scales = scales.reshape(-1) * np.float32(attributes.get("alpha", 1.0))
        number, step = self._rounded(node.input[0], (-1,))
        end = f"{node.output[0]}{_ENDING}"
        made = self._node("MatMul", f"{end}_sums", number, self._constant(end, whole), label=node)
        biased = node.op_type == "Gemm" and len(node.input) > 2 and node.input[2]
        result = self._scaled(end, made, step, scales, None if biased else node.output[0])
        if biased:
            bias, beta = node.input[2], np.float32(attributes.get("beta", 1.0))
            if beta != 1:
                bias = self._node("Mul", f"{end}_bias", bias, self._constant(f"{end}_beta", beta))
            self._node("Add", node.output[0], result, bias)

    def _convolve(self, node: onnx.NodeProto, weight: Array) -> None:
        whole, scales = by_column(weight, (1, 2, 3))
        number, step = self._rounded(node.input[0], (1, 2, 3))
        end = f"{node.output[0]}{_ENDING}"
        made = onnx.NodeProto()
        made.CopyFrom(node)
        del made.input[:], made.output[:]
        made.input.extend([number, self._constant(end, whole)])
        made.output.append(f"{end}_sums")
        self.nodes.append(made)
        biased = len(node.input) > 2 and node.input[2]
        scales = scales.reshape(-1, 1, 1)
        sums = made.output[0]
        result = self._scaled(end, sums, step, scales, None if biased else node.output[0])
        if biased:
            shape = self._constant(f"{end}_shape", np.array([1, -1, 1, 1], np.int64))
            bias = self._node("Reshape", f"{end}_bias", node.input[2], shape)
            self._node("Add", node.output[0], result, bias)

    def _scaled(self, end: str, sums: str, step: str, scales: Array, output: str | None) -> str:
        columns = self._node("Mul", f"{end}_columns", sums, self._constant(f"{end}_scales", scales))
        return self._node("Mul", output or f"{end}_scaled", columns, step)

    def _rounded(self, name: str, axes: tuple[int, ...]) -> tuple[str, str]:
        """The name of a value's integers, as float32, and of what one of them is worth."""
        if (name, axes) not in self.rows:
            end, value = f"{name}{_ENDING}{len(self.rows)}", name
            if axes == (-1,) and name in self.scales:
                inverse = self._constant(f"{end}_channels", 1 / self.scales[name])
                value = self._node("Mul", f"{end}_smooth", name, inverse)
            sizes = self._node("Abs", f"{end}_sizes", value)
            # A maximum may pass over NaN, so a number that is not finite counts as infinity.
            sizes = self._where_finite(f"{end}_known", sizes, sizes, np.inf)
            greatest = self._greatest(f"{end}_greatest", sizes, axes)
            most = self._constant(f"{_ENDING}_most", np.float32(MOST))
            least = self._constant(f"{_ENDING}_least", np.float32(_LEAST))
            each = self._node("Div", f"{end}_each", greatest, most)
            step = self._where_finite(f"{end}_step", greatest, each, np.nan)
            some = self._node("Max", f"{end}_some", greatest, least)
            scaled = self._node(
                "Mul", f"{end}_in", value, self._node("Div", f"{end}_by", most, some)
            )
            if self.nudge:
                moved = self._constant(f"{_ENDING}_nudge", np.float32(MOST * self.nudge))
                scaled = self._node("Add", f"{end}_moved", scaled, moved)
            near = self._node("Round", f"{end}_near", scaled)
            self._node("Cast", f"{end}_bytes", near, to=TensorProto.INT8)
            number = self._node("Cast", end, f"{end}_bytes", to=TensorProto.FLOAT)
            self.rows[name, axes] = number, step
        return self.rows[name, axes]

    def _where_finite(self, output: str, sizes: str, given: str, otherwise: float) -> str:
        """`given` where `sizes` is a number that is not infinite, else the constant."""
        widest = self._constant(f"{_ENDING}_widest", np.finfo(np.float32).max)
        finite = self._node("LessOrEqual", f"{output}_finite", sizes, widest)
        other = self._constant(f"{_ENDING}_{otherwise}", np.float32(otherwise))
        return self._node("Where", output, finite, given, other)

    def _greatest(self, output: str, sizes: str, axes: tuple[int, ...]) -> str:
        if self.opset < _AXES_ARE_INPUTS:
            return self._node("ReduceMax", output, sizes, axes=list(axes), keepdims=1)
        given = self._constant(f"{output}_axes", np.array(axes, np.int64))
        return self._node("ReduceMax", output, sizes, given, keepdims=1)

    def _node(
        self, op: str, output: str, *given: str, label: onnx.NodeProto | None = None, **more: Any
    ) -> str:
        name = "" if label is None else label_of(label)
        self.nodes.append(helper.make_node(op, list(given), [output], name=name, **more))
        return output

    def _constant(self, name: str, value: Any) -> str:
        named = f"{name}_constant"
        if named not in self.constants:
            self.constants[named] = numpy_helper.from_array(
                np.ascontiguousarray(value).reshape(np.shape(value)), named
            )
        return named


def _upright(node: onnx.NodeProto, weight: Array) -> Array:
    """The weights of a matmul as [depth, columns]."""
    turned = any(one.name == "transB" and one.i for one in node.attribute)
    return weight.T if turned else weight


def by_column(weight: Array, axes: int | tuple[int, ...]) -> tuple[Array, Array]:
    """Integers up to 127 as float32, and what one of each column is worth."""
    greatest = np.abs(weight).max(axis=axes, keepdims=True).astype(np.float32)
    scales = np.where(greatest > _LEAST, greatest, np.float32(MOST)) / np.float32(MOST)
    whole = np.clip(np.rint(weight / scales), -MOST, MOST)
    return whole.astype(np.float32), scales.astype(np.float32)
